package main

import (
	"context"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/plog"
)

// jsonl appends each received log batch to a file as one line of OTLP JSON and
// returns only after fsync, so an acknowledged batch is on disk.
type jsonlConfig struct {
	Path string `mapstructure:"path"`
}

type jsonl struct {
	path string
	mu   sync.Mutex
	f    *os.File
}

func (j *jsonl) Start(context.Context, component.Host) (err error) {
	j.f, err = os.OpenFile(j.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return
}

func (j *jsonl) Shutdown(context.Context) error {
	if j.f == nil {
		return nil
	}
	return j.f.Close()
}
func (j *jsonl) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (j *jsonl) ConsumeLogs(_ context.Context, ld plog.Logs) error {
	b, err := (&plog.JSONMarshaler{}).MarshalLogs(ld)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err = j.f.Write(append(b, '\n')); err != nil {
		return err
	}
	return j.f.Sync()
}

func jsonlFactory() exporter.Factory {
	return exporter.NewFactory(component.MustNewType("jsonl"),
		func() component.Config { return &jsonlConfig{} },
		exporter.WithLogs(func(_ context.Context, _ exporter.Settings, c component.Config) (exporter.Logs, error) {
			return &jsonl{path: c.(*jsonlConfig).Path}, nil
		}, component.StabilityLevelDevelopment))
}
