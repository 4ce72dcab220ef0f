// Receives CloudEvents with the library of the CloudEvents project, for a test: cloudevents-receiver ORIGIN PER_MINUTE
//
// It consents to that origin, with that rate. It prints its URL, then each event as a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
)

func main() {
	perMinute, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	client, err := cloudevents.NewClientHTTP(
		cehttp.WithListener(listener),
		cehttp.WithDefaultOptionsHandlerFunc([]string{http.MethodPost}, perMinute, []string{os.Args[1]}, false),
	)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s/\n", listener.Addr())
	take := func(event cloudevents.Event) cloudevents.Result {
		line, err := json.Marshal(event)
		if err != nil {
			return cloudevents.NewHTTPResult(http.StatusBadRequest, "%w", err)
		}
		fmt.Println(string(line))
		return cloudevents.ResultACK
	}
	log.Fatal(client.StartReceiver(context.Background(), take))
}
