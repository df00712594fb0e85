package inbox

import "time"

// Clock is the database's time as a process knows it: the timestamp of one strong read and the monotonic readings around
// it. The true time lies between Earliest and Latest; no instance's wall clock decides anything.
//
// Use Earliest to decide whether a due time or another worker's lease has passed, and Latest to set the end of a lease of our
// own. An error of the clock then can only delay us; it cannot shorten another worker's lease.
//
// A strong read shows all that was committed before it began, and its timestamp is not after the true time; how far it may
// lie before the true time, Spanner does not promise. A commit's timestamp is exact on both sides: it lies between the
// beginning and the end of its call. So what the process has committed lately counts too, where it says that it is later.
type Clock struct {
	Read     time.Time // the read's timestamp, from the database
	Sent     time.Time // local reading before the read was sent
	Received time.Time // local reading after its first answer
	// Commit is the latest commit of this process; zero: it has made none lately.
	Commit Reading
}

// Reading is a timestamp that lies between two local readings.
type Reading struct {
	At, Sent, Received time.Time
}

// LagTolerated is how far a read's timestamp may seem to lie before the local wall clock. What is beyond is looked into: it
// is the wall clock that is wrong, or the timestamp is old.
const LagTolerated = time.Second

// Lag returns by how much the read's timestamp seems to lie before the local wall clock; zero: it does not.
func (c Clock) Lag() time.Duration {
	return max(0, c.Received.Round(0).Sub(c.Read)) // without the monotonic part, of which the database has none
}

// Earliest returns a time that is not after the database's time at the local reading.
func (c Clock) Earliest(local time.Time) time.Time {
	earliest := c.Read.Add(local.Sub(c.Received))
	if c.Commit.At.IsZero() {
		return earliest
	}
	return later(earliest, c.Commit.At.Add(local.Sub(c.Commit.Received)))
}

// Latest returns a time that is not before the database's time at the local reading, if the read's timestamp was that of its
// moment, or the process has committed lately.
func (c Clock) Latest(local time.Time) time.Time {
	latest := c.Read.Add(local.Sub(c.Sent))
	if c.Commit.At.IsZero() {
		return latest
	}
	return later(latest, c.Commit.At.Add(local.Sub(c.Commit.Sent)))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
