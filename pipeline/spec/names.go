package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const nameHint = "letters, digits, dot, underscore and dash, at most 64, not beginning with a dot or a dash"

// nameFault judges a name that becomes part of paths, keys, ids and command
// lines.
func nameFault(what, name string) (fault, hint string) {
	if regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`).MatchString(name) {
		return "", ""
	}
	return fmt.Sprintf("%s name %q cannot be used in paths and keys", what, clip(name)), nameHint
}

// bucketFault follows the general rules of S3 bucket names.
func bucketFault(bucket string) (fault, hint string) {
	const hint3 = "3 to 63 lower-case letters, digits, dots and dashes, beginning and ending with a letter or digit"
	ok := regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`).MatchString(bucket)
	address := regexp.MustCompile(`^\d+\.\d+\.\d+\.\d+$`).MatchString(bucket)
	switch {
	case strings.Contains(bucket, "/"):
		return fmt.Sprintf("%q is not a bucket name", clip(bucket)), "a folder within the bucket goes to prefix, a server to endpoint"
	case !ok || address || strings.Contains(bucket, ".."):
		return fmt.Sprintf("%q is not a bucket name", clip(bucket)), hint3
	}
	return "", ""
}

// urlFault judges an http or https URL. It is stricter than the RFC: what a
// deck talks to has a plain host and no password in it.
func urlFault(url string, query bool) (fault, hint string) {
	const hint0 = "as in https://host:9000"
	m := regexp.MustCompile(`^(https?)://([^/?#]*)([^?#]*)(.*)$`).FindStringSubmatch(url)
	if m == nil || strings.ContainsFunc(url, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }) {
		return fmt.Sprintf("%q is not an http or https URL", clip(url)), hint0
	}
	host := m[2]
	switch {
	case strings.Contains(host, "@"):
		return "the URL holds a user name or password", "credentials come from the AWS chain or the environment, never from the spec"
	case !hostPort(host):
		return fmt.Sprintf("%q is not a host", clip(host)), hint0
	case m[4] != "" && !query:
		return fmt.Sprintf("the URL has more than a host and a path: %q", clip(m[4])), hint0
	}
	return "", ""
}

// hostPort accepts HOST, HOST:PORT and [IPV6]:PORT.
func hostPort(s string) bool {
	m := regexp.MustCompile(`^(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?$`).FindStringSubmatch(s)
	if m == nil {
		return false
	}
	if m[1] == "" {
		return true
	}
	port, err := strconv.Atoi(m[1])
	return err == nil && port >= 1 && port <= 65535
}

// sshFault judges user@host:port or an alias; the text ends up as an ssh
// destination, so it must not look like an option.
func sshFault(dest string) (fault, hint string) {
	host := dest
	if user, rest, ok := strings.Cut(dest, "@"); ok {
		host = rest
		if !regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`).MatchString(user) {
			return fmt.Sprintf("%q is not a user name", clip(user)), "user@host:port, or an alias of the SSH config"
		}
	}
	if !hostPort(host) {
		return fmt.Sprintf("%q is not an SSH destination", clip(dest)), "user@host:port, or an alias of the SSH config"
	}
	return "", ""
}

func stopSignals() []string {
	return []string{"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"}
}

func pauseSignals() []string { return []string{"SIGSTOP", "SIGTSTP", "SIGUSR1", "SIGUSR2"} }

func signalFault(signal string, allowed []string) (fault, hint string) {
	switch {
	case slices.Contains(allowed, signal):
		return "", ""
	case slices.Contains(allowed, "SIGTERM") && signal == "SIGKILL":
		return "a worker cannot handle SIGKILL: what it computes would be lost",
			"give the signal on which it finishes; after the grace pipedeck escalates to SIGKILL by itself"
	}
	return fmt.Sprintf("unknown signal %q%s", clip(signal), didYouMean(signal, allowed)), "one of " + strings.Join(allowed, ", ")
}

func envFault(name string) (fault, hint string) {
	switch {
	case !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(name):
		return fmt.Sprintf("%q is not the name of an environment variable", clip(name)), ""
	case strings.HasPrefix(name, "PIPEDECK_"):
		return fmt.Sprintf("environment variable %q belongs to pipedeck", clip(name)), "workers are recognised by these variables; choose another name"
	}
	return "", ""
}
