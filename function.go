// Package inbox is the root of the deployment: Google's Go function buildpack looks for functions only here. It
// registers both, and each deployment serves the one that FUNCTION_TARGET names.
package inbox

import (
	_ "github.com/GoogleCloudPlatform/functions-framework-go/functions"

	_ "github.com/pubsub-inbox/pubsub-inbox/functions/receive"
	_ "github.com/pubsub-inbox/pubsub-inbox/functions/relay"
)
