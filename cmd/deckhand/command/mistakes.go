package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/kit/suggest"
)

// flagError is the first error in the flags of a command line.
type flagError struct{ error }

// flagMistakes describes the errors of all flags of the command line args; nil if there are none.
func (a *app) flagMistakes(root *cobra.Command, args []string) error {
	cmd, rest, err := root.Find(args)
	if err != nil {
		return nil
	}
	var found []error
rounds:
	for range args { // each round finds one error and accepts the flag in the next round
		err := cmd.ParseFlags(rest)
		var unknown *pflag.NotExistError
		var value *pflag.InvalidValueError
		var needed *pflag.ValueRequiredError
		switch {
		case err == nil, errors.Is(err, pflag.ErrHelp):
			break rounds
		case errors.As(err, &unknown):
			found = append(found, unknownFlag(cmd, unknown, a.inClusterBy(cmd, rest)))
			accept := &pflag.Flag{Name: unknown.GetSpecifiedName(), Value: anything{}, NoOptDefVal: "true"}
			if unknown.GetSpecifiedShortnames() != "" {
				accept.Name, accept.Shorthand = "shorthand "+accept.Name, accept.Name
			}
			cmd.Flags().AddFlag(accept)
		case errors.As(err, &value):
			found = append(found, badValue(value))
			value.GetFlag().Value = anything{}
		case errors.As(err, &needed):
			found = append(found, fmt.Errorf("--%s needs a value", needed.GetFlag().Name))
			break rounds // the flag is the last argument
		default:
			found = append(found, err)
			break rounds
		}
	}
	if len(found) == 0 {
		return nil
	}
	return usagef(cmd, "%w", errors.Join(found...))
}

// anything is a flag value that accepts any text. It replaces the value of a flag whose error was already found.
type anything struct{}

func (anything) String() string   { return "" }
func (anything) Set(string) error { return nil }
func (anything) Type() string     { return "" }

// unknownFlag returns an error for an unknown flag. It suggests a flag with a similar name, or the replacement of a
// flag that the kubelet no longer has.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError, cluster bool) error {
	name := strings.ReplaceAll(unknown.GetSpecifiedName(), "_", "-")
	if all := unknown.GetSpecifiedShortnames(); all != "" {
		if len(all) > 1 {
			return fmt.Errorf("unknown flag: -%s in -%s", name, all)
		}
		if instead, ok := show.FindHint(flagsElsewhere, cmd.Name()+"/"+name, cluster); ok {
			return fmt.Errorf("unknown flag: -%s: %s", name, instead)
		}
		return fmt.Errorf("unknown flag: -%s", name)
	}
	if cmd.Flags().Lookup("pod-manifest-path") != nil { // the command has the agent's flags, which are the kubelet's
		if instead, ok := flags.Removed(name); ok {
			return fmt.Errorf("--%s: the kubelet no longer has this flag: %s", name, instead)
		}
	}
	if instead, ok := show.FindHint(flagsElsewhere, cmd.Name()+"/"+name, cluster); ok {
		return fmt.Errorf("unknown flag: --%s: %s", name, instead)
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	if like := suggest.Of(name, slices.Values(known), 1+min(2, len(name)/6)); like != "" {
		return fmt.Errorf("unknown flag: --%s, did you mean --%s?", name, like)
	}
	return fmt.Errorf("unknown flag: --%s", name)
}

// badValue describes the valid values of a flag.
func badValue(e *pflag.InvalidValueError) error {
	flag, kind := e.GetFlag(), ""
	switch flag.Value.Type() {
	case "int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64":
		kind = "an integer"
	case "float32", "float64":
		kind = "a number"
	case "bool":
		kind = "true or false"
	case "duration":
		kind = `a duration such as "30s" or "1h30m"`
	}
	var number *strconv.NumError
	if errors.As(e, &number) && kind == "" { // a type of another package
		switch number.Func {
		case "ParseInt", "ParseUint", "Atoi":
			kind = "an integer"
		case "ParseFloat":
			kind = "a number"
		case "ParseBool":
			kind = "true or false"
		}
	}
	switch {
	case kind == "":
		return fmt.Errorf("--%s: %q can't be used: %w", flag.Name, e.GetValue(), e.Unwrap())
	case errors.As(e, &number) && errors.Is(number, strconv.ErrRange):
		return fmt.Errorf("--%s: %s is out of range", flag.Name, e.GetValue())
	case number != nil && number.Func == "ParseUint" && strings.HasPrefix(e.GetValue(), "-"):
		return fmt.Errorf("--%s: %s is negative: it must be 0 or more", flag.Name, e.GetValue())
	}
	return fmt.Errorf("--%s: %q isn't %s", flag.Name, e.GetValue(), kind)
}

// arguments returns a check of arguments like check, with better errors: which argument is missing or superfluous.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		for n := len(args) - 1; n >= 0; n-- {
			if check(cmd, args[:n]) == nil {
				return usagef(cmd, "%q is one argument too many: %s", args[n], cmd.UseLine())
			}
		}
		name := "an argument"
		if names := strings.Fields(strings.Replace(cmd.Use, " [flags]", "", 1))[1:]; len(args) < len(names) {
			name = names[len(args)]
		}
		return usagef(cmd, "%s is missing: %s", name, cmd.UseLine())
	}
}
