package inbox

import (
	"math/rand/v2"
	"time"
)

// Backoff returns the delay before the next try after the given number of failures: base doubled for each failure after
// the first, never under base, never over limit, and without overflow for any count. A limit under base counts as base.
func Backoff(base, limit time.Duration, failures int64) time.Duration {
	base = max(base, time.Millisecond)
	limit = max(limit, base)
	delay := base
	for i := int64(1); i < failures && delay < limit; i++ {
		if delay > limit/2 {
			return limit
		}
		delay *= 2
	}
	return min(delay, limit)
}

// Jitter spreads delay over [delay/2, delay], so that what failed together does not come back together.
func Jitter(r *rand.Rand, delay time.Duration) time.Duration {
	half := delay / 2
	if half <= 0 {
		return max(delay, 0)
	}
	return delay - time.Duration(r.Int64N(int64(half)+1))
}
