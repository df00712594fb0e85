package inbox_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func TestTheShardsOfAFlowAreItsOwn(t *testing.T) {
	seen := map[int64]string{}
	for _, route := range []string{"", "r", "s", "work-order-completed", "a-very-long-name-of-a-route"} {
		flow := inbox.FlowOf(route)
		shards := append(flow.Slots(), flow.Suspects())
		if !slices.IsSorted(shards) || shards[0] != flow.First() || shards[len(shards)-1] > flow.Last() {
			t.Errorf("the shards of %q are not in order between its first and its last: %v", route, shards)
		}
		for _, shard := range shards {
			if other, ok := seen[shard]; ok {
				t.Errorf("shard %d is of %q and of %q", shard, other, route)
			}
			seen[shard] = route
			if inbox.FlowAt(shard) != flow {
				t.Errorf("shard %d is found in flow %d, want %d", shard, inbox.FlowAt(shard), flow)
			}
			if inbox.SuspectShard(shard) != (shard == flow.Suspects()) {
				t.Errorf("shard %d of %q is taken for suspects: %v", shard, route, inbox.SuspectShard(shard))
			}
		}
		for i := range 200 {
			id := inbox.LaneID(consumer, "", inbox.OrderPublished, fmt.Sprintf("WO-%d", i))
			if shard := inbox.LaneShard(route, "", id); !slices.Contains(flow.Slots()[:inbox.Shards], shard) {
				t.Errorf("lane %s of %q is in shard %d, want one of its slots", id, route, shard)
			}
			if shard := inbox.LaneShard(route, fmt.Sprintf("tenant-%d", i), id); !slices.Contains(flow.Slots()[inbox.Shards:], shard) {
				t.Errorf("a tenant's lane of %q is in shard %d, want a slot for tenants", route, shard)
			}
		}
	}
	// What was stored before flows were is in shards 0 to 15, which have their turn too.
	if got := inbox.FlowOf("").Slots(); got[0] != 0 || got[15] != 15 {
		t.Errorf("lanes without a route are in shards %v, want 0 to 15", got)
	}
}

func TestATenantsLanesAreInOneSlot(t *testing.T) {
	slots := map[int64]bool{}
	for i := range 50 {
		slots[inbox.LaneShard("r", "acme", fmt.Sprintf("%02xlane", i))] = true
	}
	if len(slots) != 1 {
		t.Errorf("a tenant's lanes are in %d slots, want 1", len(slots))
	}
}
