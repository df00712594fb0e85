package httpengine

import "github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"

// Secret is a text that does not show itself.
type Secret = httpcall.Secret

// Headers are header values by name. The values may be secrets, and show themselves no more than a Secret does.
type Headers = httpcall.Headers
