// Command cmd serves the function Receive alone, for an image of its own.
package main

import (
	"os"

	"github.com/pubsub-inbox/pubsub-inbox/functions/receive"
)

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	receive.Main("", port)
}
