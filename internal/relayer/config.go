package relayer

import (
	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// sweepSlice is how many open rows a run looks over before its first scan.
const sweepSlice = 500

// FromConfig takes a relay's settings from the configuration.
func FromConfig(cfg *config.Config, revision string) Config {
	routes := make(map[string]RoutePolicy, len(cfg.Routes))
	for _, route := range cfg.Routes {
		var claim *ClaimPolicy
		if route.Claim != nil {
			claim = &ClaimPolicy{Read: route.Claim.Read, MaxBytes: route.Claim.MaxBytes}
		}
		routes[route.Name] = RoutePolicy{Claim: claim, Engine: route.Engine, Patience: route.Patience, RetryMin: route.Retry.Min, RetryMax: route.Retry.Max, Start: route.Start}
	}
	return Config{
		Consumer: cfg.Consumer, Revision: revision, Budget: cfg.Relay.Budget, Poll: cfg.Relay.Poll, Parallel: cfg.Relay.Parallel,
		Batch: cfg.Relay.Batch, Lease: cfg.Relay.Lease, Retention: cfg.Retention.Processed, PayloadRetention: cfg.Retention.Payload,
		Routes: routes, Buckets: cfg.ClaimCheck.Buckets,
		Poison: inbox.PoisonPolicy{Failures: int64(cfg.Relay.Poison.Failures), Over: cfg.Relay.Poison.Over,
			LostWorkers: int64(cfg.Relay.LostWorkers)},
		BreakerFailures: int64(cfg.Relay.Breaker.Failures), SweepSlice: sweepSlice,
	}
}
