// Package workorder holds the files of the work-order example, as they are deployed: the demo and the tests run these and
// no others. README.md says what they are about.
package workorder

import _ "embed"

// BPMN is the process work-order-execution.
//
//go:embed work-order.bpmn20.xml
var BPMN []byte

// Config is the configuration of the inbox.
//
//go:embed pubsub-inbox.yaml
var Config string

// Properties are Flowable's settings, for Spring Boot.
//
//go:embed flowable.properties
var Properties []byte
