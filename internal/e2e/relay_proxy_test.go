package e2e_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/api/option"
	transport "google.golang.org/api/transport/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
)

// startProxy puts a tap between a process and the Spanner emulator: what an interceptor does for a client in this process,
// it does for one in another. It returns the address for SPANNER_EMULATOR_HOST. Requests and replies go through as they
// came; hooks see each as a *frame.
func startProxy(t *testing.T, tap *rpctap.Tap) string {
	t.Helper()
	conn, err := transport.DialInsecure(t.Context(), append(tap.Options(), option.WithEndpoint(emulatortest.Spanner(t)),
		option.WithGRPCDialOption(grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frameCodec{}),
			grpc.MaxCallRecvMsgSize(64<<20))))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(frameCodec{}), grpc.MaxRecvMsgSize(64<<20),
		grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error { return forward(conn, in) }))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return l.Addr().String()
}

// forward takes one call of Spanner's API further: one request, one or many replies.
func forward(conn grpc.ClientConnInterface, in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	received, _ := metadata.FromIncomingContext(in.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(in.Context(), received))
	defer cancel()
	out, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	request := &frame{}
	if err := in.RecvMsg(request); err != nil {
		return err
	}
	if err := out.SendMsg(request); err != nil {
		return err
	}
	if err := out.CloseSend(); err != nil {
		return err
	}
	for {
		reply := &frame{}
		if err := out.RecvMsg(reply); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := in.SendMsg(reply); err != nil {
			return err
		}
	}
}

// frame is one message as it is on the wire.
type frame struct{ bytes []byte }

type frameCodec struct{}

func (frameCodec) Name() string { return "proto" }

func (frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*frame).bytes)}, nil
}

func (frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*frame).bytes = data.Materialize()
	return nil
}

// commitTag is the transaction tag of a commit, from either side of a tap.
func commitTag(req any) string {
	commit, ok := req.(*spannerpb.CommitRequest)
	if !ok {
		commit = &spannerpb.CommitRequest{}
		if proto.Unmarshal(req.(*frame).bytes, commit) != nil {
			return ""
		}
	}
	return commit.GetRequestOptions().GetTransactionTag()
}

// readTable is the table of a read that has come through a proxy.
func readTable(req any) string {
	read := &spannerpb.ReadRequest{}
	if proto.Unmarshal(req.(*frame).bytes, read) != nil {
		return ""
	}
	return read.GetTable()
}

// hold stops every call of a method that matches before it is sent, until release is called or its client is gone.
// arrived is closed at the first.
func hold(tap *rpctap.Tap, method string, matches func(req any) bool) (arrived <-chan struct{}, release func()) {
	first, open := newSignal(), newSignal()
	tap.Before(method, func(ctx context.Context, _ int, req any) error {
		if !matches(req) {
			return nil
		}
		first.set()
		select {
		case <-open.c:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return first.c, open.set
}
