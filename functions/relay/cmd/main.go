// Command cmd serves the function Relay alone, for an image of its own.
package main

import (
	"os"

	"github.com/pubsub-inbox/pubsub-inbox/functions/relay"
)

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	relay.Main("", port)
}
