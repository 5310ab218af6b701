// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Fault is what a user asks a lab for.
type Fault struct {
	Kind Kind `json:"kind"`
	// Name is of a resource or a node.
	Name string `json:"name,omitempty"`
	// For is how long the fault lasts.
	For time.Duration `json:"for"`
}

// Kind is a kind of fault.
type Kind string

// The kinds.
const (
	// Hold holds the watches of a resource back from the kube-controller-manager.
	Hold Kind = "hold"
	// KillNode stops a node's heartbeats.
	KillNode Kind = "kill-node"
	// RefusePods has a quota refuse new pods.
	RefusePods Kind = "refuse-pods"
)

// Run carries out a fault, says what happens, and takes the fault back before it returns, whether it is over or the
// context has ended.
type Run func(ctx context.Context, fault Fault, say func(string)) error

const stopped = "the lab was stopped"

// message is one line of an answer.
type message struct {
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
	// Done ends the answer.
	Done bool `json:"done,omitempty"`
}

// Server waits for a second command.
type Server struct {
	file   *stateFile
	token  string
	run    Run
	server *http.Server
	cancel context.CancelFunc
	served chan struct{}
}

// Reserve takes the state file, so that there is one lab only. Nobody is answered before Serve.
func Reserve(path string) (*Server, error) {
	file, err := createStateFile(path)
	if err != nil {
		return nil, err
	}
	s := &Server{file: file, token: rand.Text()}
	if err := file.write(state{PID: os.Getpid()}); err != nil {
		return nil, errors.Join(err, file.remove())
	}
	return s, nil
}

// Serve answers until Close.
func (s *Server) Serve(ctx context.Context, run Run) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for a second command: %w", err)
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.run, s.served = run, make(chan struct{})
	s.server = &http.Server{
		Handler:           http.HandlerFunc(s.answer),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	go func() {
		defer close(s.served)
		_ = s.server.Serve(listener) // ends by Close
	}()
	return s.file.write(state{PID: os.Getpid(), URL: "http://" + listener.Addr().String(), Token: s.token})
}

// Close ends every fault that is under way, and returns when all are taken back.
func (s *Server) Close(ctx context.Context) error {
	if s.server == nil {
		return nil
	}
	s.cancel()
	err := s.server.Shutdown(ctx)
	<-s.served
	return err
}

// Release removes the state file. It comes after Close.
func (s *Server) Release() error { return s.file.remove() }

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+s.token)) != 1 {
		http.Error(w, "this needs the token of the state file", http.StatusUnauthorized)
		return
	}
	var fault Fault
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<10)).Decode(&fault); err != nil || r.Method != http.MethodPost {
		http.Error(w, "this takes a POST of a fault", http.StatusBadRequest)
		return
	}
	encoder, flush := json.NewEncoder(w), http.NewResponseController(w).Flush
	send := func(m message) {
		_ = encoder.Encode(m) // a client that has gone ends the request's context
		_ = flush()
	}
	end := message{Done: true}
	err := s.run(r.Context(), fault, func(text string) { send(message{Text: text}) })
	switch {
	case r.Context().Err() != nil:
		end.Error = stopped
	case err != nil:
		end.Error = err.Error()
	}
	send(end)
}

// Ask has the lab of a state file carry out a fault and passes on what it says. When the context ends the lab takes the
// fault back, which is no error.
func Ask(ctx context.Context, path string, fault Fault, say func(string)) error {
	st, err := readStateFile(path)
	if err != nil {
		return err
	}
	body, err := json.Marshal(fault)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, st.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+st.Token)
	response, err := http.DefaultClient.Do(request)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("asking the lab (pid %d): %w", st.PID, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return fmt.Errorf("asking the lab (pid %d): %s", st.PID, bytes.TrimSpace(text))
	}
	for lines := json.NewDecoder(response.Body); ; {
		var m message
		switch err := lines.Decode(&m); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return errors.New(stopped)
		case m.Error != "":
			return errors.New(m.Error)
		case m.Done:
			return nil
		}
		say(m.Text)
	}
}
