package inbox

// Placement is what a route says about a message's lane and order.
type Placement struct {
	Key      string // empty: a lane of its own
	KeySpace string
	Order    OrderKind
	Sequence int64
}

// Place puts m into its lane and order. m must have its consumer, its id and its times: OrderedAt, if set, stands in for
// an unknown publish time.
func (m *Message) Place(p Placement) {
	m.Key, m.Sequence = p.Key, 0
	if p.Order == OrderSequence {
		m.Sequence = p.Sequence
	}
	switch {
	case p.Order == OrderReceived:
		m.OrderedAt = EpochOrder
	case !m.PublishedAt.IsZero():
		m.OrderedAt = m.PublishedAt
	case m.OrderedAt.Equal(EpochOrder):
		m.OrderedAt = m.ReceivedAt // it was ordered by its commit timestamp until now
	}
	m.LaneID = OwnLaneID(m.Consumer, m.ID)
	if p.Key != "" && p.Order != OrderNone {
		m.LaneID = LaneID(m.Consumer, p.KeySpace, p.Order, p.Key)
	}
}
