package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Time limit for all questions of a script.
const scriptTimeout = 15 * time.Minute

// A script for a client of the Model Context Protocol: the server, and the tools to call, one after the other.
type script struct {
	// Command of a server over standard input and output.
	Command []string `json:"command"`
	// Address of a server over HTTP, and its token.
	URL   string `json:"url"`
	Token string `json:"token"`
	Calls []call `json:"calls"`
}

type call struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
}

// Answer of a call, and what the client finds wrong with it.
type reply struct {
	Answer  json.RawMessage `json:"answer"`
	IsError bool            `json:"isError"`
	Wrong   []string        `json:"wrong"`
}

// What the server said of itself, and the replies.
type transcript struct {
	Server       string   `json:"server"`
	Instructions string   `json:"instructions"`
	Tools        []string `json:"tools"`
	Replies      []reply  `json:"replies"`
}

// bearer shows a token with every request.
type bearer struct{ token string }

func (b bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	if b.token != "" {
		request.Header.Set("Authorization", "Bearer "+b.token)
	}
	return http.DefaultTransport.RoundTrip(request)
}

// assist plays a script with the official Go SDK, and prints the transcript as JSON. Each answer is held against the output schema
// that the server declares for its tool, and against the text that older clients read.
func assist(path string) error {
	written, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var played script
	if err := json.Unmarshal(written, &played); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	var transport mcp.Transport
	if played.URL != "" {
		client := &http.Client{Transport: bearer{played.Token}}
		transport = &mcp.StreamableClientTransport{Endpoint: played.URL, HTTPClient: client, MaxRetries: -1}
	} else {
		command := exec.Command(played.Command[0], played.Command[1:]...)
		command.Stderr = os.Stderr
		transport = &mcp.CommandTransport{Command: command}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "judges", Version: "1"}, nil)
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer session.Close()
	said := session.InitializeResult()
	result := transcript{Server: said.ServerInfo.Name, Instructions: said.Instructions, Replies: []reply{}}
	schemas := map[string]*jsonschema.Resolved{}
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return fmt.Errorf("tools: %w", err)
		}
		schema, err := resolved(tool.OutputSchema)
		if err != nil {
			return fmt.Errorf("the output schema of %s: %w", tool.Name, err)
		}
		if _, err := resolved(tool.InputSchema); err != nil {
			return fmt.Errorf("the input schema of %s: %w", tool.Name, err)
		}
		schemas[tool.Name] = schema
		result.Tools = append(result.Tools, tool.Name)
	}
	for _, one := range played.Calls {
		answer, err := session.CallTool(ctx, &mcp.CallToolParams{Name: one.Tool, Arguments: one.Arguments})
		if err != nil {
			return fmt.Errorf("%s %v: %w", one.Tool, one.Arguments, err)
		}
		judged, err := judgedReply(answer, schemas[one.Tool])
		if err != nil {
			return fmt.Errorf("%s %v: %w", one.Tool, one.Arguments, err)
		}
		result.Replies = append(result.Replies, judged)
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func resolved(declared any) (*jsonschema.Resolved, error) {
	written, err := json.Marshal(declared)
	if err != nil {
		return nil, err
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(written, &schema); err != nil {
		return nil, err
	}
	return schema.Resolve(nil)
}

func judgedReply(answer *mcp.CallToolResult, schema *jsonschema.Resolved) (reply, error) {
	structured, err := json.Marshal(answer.StructuredContent)
	if err != nil {
		return reply{}, err
	}
	judged := reply{Answer: structured, IsError: answer.IsError, Wrong: []string{}}
	if schema != nil {
		if err := schema.Validate(answer.StructuredContent); err != nil {
			judged.Wrong = append(judged.Wrong, err.Error())
		}
	}
	if len(answer.Content) != 1 {
		judged.Wrong = append(judged.Wrong, fmt.Sprintf("there are %d contents", len(answer.Content)))
		return judged, nil
	}
	text, ok := answer.Content[0].(*mcp.TextContent)
	if !ok {
		judged.Wrong = append(judged.Wrong, "the content is no text")
		return judged, nil
	}
	var same any
	if err := json.Unmarshal([]byte(text.Text), &same); err != nil {
		judged.Wrong = append(judged.Wrong, "the text is no JSON: "+err.Error())
		return judged, nil
	}
	again, err := json.Marshal(same)
	if err != nil {
		return reply{}, err
	}
	if !bytes.Equal(again, structured) {
		judged.Wrong = append(judged.Wrong, "the text is another answer than the structure")
	}
	return judged, nil
}
