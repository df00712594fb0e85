package inbox

import "time"

// Clock is the database's time as a process knows it: the timestamp of one strong read and the monotonic readings around
// it. The true time lies between Earliest and Latest; no instance's wall clock decides anything.
//
// Whoever judges what has come (a due time, the end of somebody's lease) uses Earliest, whoever promises a time (the end
// of the own lease) uses Latest: both err on the side that takes nothing from anybody.
type Clock struct {
	Read     time.Time // the read's timestamp, from the database
	Sent     time.Time // local reading before the read was sent
	Received time.Time // local reading after its first answer
}

// Earliest returns a time that is not after the database's time at the local reading.
func (c Clock) Earliest(local time.Time) time.Time { return c.Read.Add(local.Sub(c.Received)) }

// Latest returns a time that is not before the database's time at the local reading.
func (c Clock) Latest(local time.Time) time.Time { return c.Read.Add(local.Sub(c.Sent)) }
