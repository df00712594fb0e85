// Package functions registers both functions, Receive and Relay. It is at the root because Google's Go function buildpack looks
// for functions only there; each deployment serves the function that FUNCTION_TARGET names.
package functions

import (
	_ "github.com/GoogleCloudPlatform/functions-framework-go/functions"

	_ "github.com/pubsub-inbox/pubsub-inbox/functions/receive"
	_ "github.com/pubsub-inbox/pubsub-inbox/functions/relay"
)
