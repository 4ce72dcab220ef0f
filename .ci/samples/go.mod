// Pins what the programs in Go of README.md and docs/wire.md are made with; the checksums are in go.sum.
module angarium/samples

go 1.23.0

require (
	github.com/nats-io/nats.go v1.43.0
	github.com/nats-io/nuid v1.0.1
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
)

require (
	github.com/klauspost/compress v1.18.0 // indirect
	github.com/nats-io/nkeys v0.4.11 // indirect
	golang.org/x/crypto v0.37.0 // indirect
	golang.org/x/sys v0.32.0 // indirect
)
