package inbox

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// A lane's shard is where a scan looks for the lane. It is a number of two parts: the flow, which is whose turn the lane
// waits for, and a slot in the flow, which spreads the writes. Flows take turns, so what waits in one flow keeps no other
// flow from its turn. A shard is a hint and decides nothing but when a lane is looked at: whoever wakes a lane files it under
// the message that it brings, and a claim files it under the head of its queue.
const (
	// Shards is how many slots of a flow hold lanes of messages without a tenant. A lane's slot among them is a hash of its id.
	Shards = 16
	// tenantSlots is how many slots of a flow hold lanes of messages with a tenant. All lanes of a tenant are in one slot, so
	// that slots taking turns is tenants taking turns; two tenants share a turn where their hashes meet.
	tenantSlots = 32
	// slotBits is the room for slots in a shard.
	slotBits = 6
	// suspectSlot holds lanes whose head has cost a worker and waits for a time when its process has nothing else to do.
	suspectSlot = 1<<slotBits - 1
)

// Flow is a group of lanes whose turn is one: those whose head is of the same route.
type Flow int64

// Unsorted is the flow of lanes without a route.
const Unsorted Flow = 0

// FlowOf returns the flow of a route's lanes. Two routes share a flow with a probability of 2^-40.
func FlowOf(route string) Flow {
	if route == "" {
		return Unsorted
	}
	sum := sha256.Sum256([]byte("flow\x00" + route))
	return Flow(binary.BigEndian.Uint64(sum[:8])>>24 | 1)
}

// Slots returns the flow's shards in ascending order, but for that of the suspects.
func (f Flow) Slots() []int64 {
	slots := make([]int64, 0, Shards+tenantSlots+1)
	for slot := range int64(Shards + tenantSlots) {
		slots = append(slots, f.shard(slot))
	}
	return slots
}

// Suspects returns the shard of the flow's lanes whose head has cost a worker.
func (f Flow) Suspects() int64 { return f.shard(suspectSlot) }

// First and Last bound the flow's shards.
func (f Flow) First() int64 { return f.shard(0) }

// Last is the largest of the flow's shards.
func (f Flow) Last() int64 { return f.shard(1<<slotBits - 1) }

func (f Flow) shard(slot int64) int64 { return int64(f)<<slotBits | slot }

// FlowAt returns the flow that a shard belongs to.
func FlowAt(shard int64) Flow { return Flow(shard >> slotBits) }

// SuspectShard reports whether a shard is one of lanes whose head has cost a worker.
func SuspectShard(shard int64) bool { return shard&suspectSlot == suspectSlot }

// LaneShard returns the shard of a lane for a message of a route and a tenant, each of which may be empty.
func LaneShard(route, tenant, laneID string) int64 {
	if tenant != "" {
		sum := sha256.Sum256([]byte("tenant\x00" + tenant))
		return FlowOf(route).shard(Shards + int64(sum[0])%tenantSlots)
	}
	if laneID == "" {
		return FlowOf(route).First()
	}
	// Lane ids are hashes in hex: their first digit is one of sixteen.
	return FlowOf(route).shard(int64(max(0, strings.IndexByte("0123456789abcdef", laneID[0]))))
}
