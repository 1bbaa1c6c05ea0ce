package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/spf13/cobra"
)

// newPromQLCommand evaluates queries as a Prometheus does that has scraped these texts. All is JSON: what is asked on standard input, and a list of vectors on
// standard output.
func newPromQLCommand() *cobra.Command {
	return &cobra.Command{Use: "promql", Args: cobra.NoArgs, SilenceUsage: true, RunE: func(cmd *cobra.Command, _ []string) error {
		var asked struct {
			// Scrapes of targets with these labels, in the order of time.
			Scrapes []struct {
				At     time.Time
				Labels map[string]string
				Text   string
			}
			Queries []string
		}
		if err := json.NewDecoder(cmd.InOrStdin()).Decode(&asked); err != nil {
			return err
		}
		var now time.Time
		all := series{}
		for _, s := range asked.Scrapes {
			if err := all.add(s.At, s.Labels, s.Text); err != nil {
				return fmt.Errorf("scrape of %v: %w", s.Labels, err)
			}
			now = s.At
		}
		engine := promql.NewEngine(promql.EngineOpts{Timeout: time.Minute, MaxSamples: 1e6, Parser: parser.NewParser(parser.Options{})})
		defer engine.Close()
		results := make([]promql.Vector, len(asked.Queries))
		for i, text := range asked.Queries {
			query, err := engine.NewInstantQuery(cmd.Context(), &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: all.selected}}, nil, text, now)
			if err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
			result := query.Exec(context.Background())
			if results[i], err = result.Vector(); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
		return json.NewEncoder(cmd.OutOrStdout()).Encode(results)
	}}
}

// series are those that were scraped, by their labels.
type series map[string]*promql.Series

// add adds what was scraped. As with Prometheus, no series may be in it twice, or have another value without a later time.
func (all series) add(at time.Time, target map[string]string, text string) error {
	scraped, err := textparse.New([]byte(text), "text/plain", nil, textparse.ParserOptions{})
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for {
		entry, err := scraped.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, measured, value := scraped.Series()
		point := promql.FPoint{T: at.UnixMilli(), F: value}
		if measured != nil {
			point.T = *measured
		}
		var own labels.Labels
		scraped.Labels(&own)
		b := labels.NewBuilder(own)
		for name, value := range target {
			b.Set(name, value)
		}
		metric := b.Labels()
		key := metric.String()
		if seen[key] {
			return fmt.Errorf("%s is there twice", key)
		}
		seen[key] = true
		s := all[key]
		if s == nil {
			s = &promql.Series{Metric: metric}
			all[key] = s
		}
		if n := len(s.Floats); n > 0 {
			last := s.Floats[n-1]
			if point == last { // it wasn't measured anew
				continue
			}
			if point.T <= last.T {
				return fmt.Errorf("%s is %v at a time that isn't after that of %v before", key, point, last)
			}
		}
		s.Floats = append(s.Floats, point)
	}
}

// selected returns those that match, sorted.
func (all series) selected(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{}
	for _, s := range all {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
			set.list = append(set.list, *s)
		}
	}
	slices.SortFunc(set.list, func(a, b promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
	return set
}

// seriesSet goes through a list: at is the number of the current one, from 1.
type seriesSet struct {
	list []promql.Series
	at   int
}

func (s *seriesSet) Next() bool {
	s.at++
	return s.at <= len(s.list)
}
func (s *seriesSet) At() storage.Series                { return promql.NewStorageSeries(s.list[s.at-1]) }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
