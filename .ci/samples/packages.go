// Package samples names what the programs in Go of README.md and docs/wire.md import, so that go.mod keeps it.
package samples

import (
	_ "github.com/nats-io/nats.go/jetstream"
	_ "github.com/nats-io/nuid"
	_ "github.com/standard-webhooks/standard-webhooks/libraries/go"
)
