package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments/suite"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/serve"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "serve all runs to a browser, also while they run, until interrupted",
		Flags: []cli.Flag{
			rootFlag(),
			&cli.StringFlag{Name: "listen", Aliases: []string{"l"}, Value: "127.0.0.1:8080", EnvVars: []string{"INABENCH_LISTEN"},
				Usage: "listen on `ADDRESS`; other machines need a token. Port 0: any free port"},
			&cli.StringFlag{Name: "token-file", Usage: "demand the token in `FILE`, also on this machine; default: a random one, printed where one is needed"},
			&cli.BoolFlag{Name: "tls", Usage: "encrypt with a new certificate, whose fingerprint is printed to compare with the browser's"},
			&cli.StringFlag{Name: "tls-cert", Usage: "encrypt with the certificate chain in `FILE`, PEM"},
			&cli.StringFlag{Name: "tls-key", Usage: "`FILE` with the private key of --tls-cert, PEM"},
		},
		Description: `It only reads. Open the address that it prints in a browser; if it has a token,
the browser needs that address only once. From elsewhere, without giving others
a way in: ssh -L 8080:localhost:8080 HOST

Examples:
  inabench serve
  inabench serve --listen :8080 --token-file ~/.inabench-token
  inabench serve --listen :8443 --tls
`,
		Action: serveAction,
	}
}

func serveAction(c *cli.Context) error {
	token, err := tokenOf(c.String("token-file"))
	if err != nil {
		return err
	}
	certificate, err := certificateOf(c)
	if err != nil {
		return err
	}
	return openIndex(c, history.OpenOrRead, func(x *history.Index) error {
		l, err := new(net.ListenConfig).Listen(c.Context, "tcp", c.String("listen"))
		if err != nil {
			return hinted{outputError{err}, "--listen HOST:PORT names another address"}
		}
		if token == "" && !serve.Local(l.Addr()) {
			token = serve.NewToken()
		}
		s, err := serve.New(rootOf(c), x, serve.Options{Token: token, Certificate: certificate, Nights: nightsOf(rootOf(c))})
		if err != nil {
			l.Close()
			return hinted{inputError{err, ""}, "head -c 24 /dev/urandom | base64 > FILE"}
		}
		fmt.Fprintln(c.App.Writer, address(l.Addr(), certificate != nil, token, c.String("token-file") == ""))
		if c.Bool("tls") {
			fmt.Fprintln(c.App.Writer, "certificate, SHA-256:", serve.Fingerprint(*certificate))
		}
		if err := s.Serve(c.Context, l); err != nil {
			return err
		}
		return context.Cause(c.Context)
	})
}

// nightsOf returns a function that lists the nights of all suites in root, the newest first.
func nightsOf(root string) func() ([]serve.Night, error) {
	return func() ([]serve.Night, error) {
		nights, err := suite.Nights(root, "")
		if err != nil {
			return nil, err
		}
		var out []serve.Night
		for i, n := range nights {
			verdict := string(n.Outcome)
			if !n.Complete() {
				verdict = "cut off"
				if i == 0 && suite.Occupied(root) {
					verdict = "running"
				}
			}
			out = append(out, nightOf(root, n, verdict))
		}
		return out, nil
	}
}

// nightOf is a night, as pages show it.
func nightOf(root string, n *suite.Night, verdict string) serve.Night {
	title := n.Counts()
	if len(n.Culprits) > 0 { // the likeliest of what got worse
		title += "; " + n.Culprits[0].String()
	}
	return serve.Night{
		ID: n.ID, Suite: n.Suite, Started: n.Started, Verdict: verdict, Title: title,
		Text: func(w io.Writer) error { return suite.WriteText(w, root, n) },
	}
}

// certificateOf is what the server is to show; nil: nothing.
func certificateOf(c *cli.Context) (*tls.Certificate, error) {
	cert, key := c.String("tls-cert"), c.String("tls-key")
	switch {
	case c.Bool("tls") && cert+key != "":
		return nil, usagef("--tls makes a certificate, --tls-cert names one", "serve: --tls and --tls-cert exclude each other")
	case c.Bool("tls"):
		made, err := serve.NewCertificate()
		return &made, err
	case cert == "" && key == "":
		return nil, nil
	case cert == "" || key == "":
		return nil, usagef("inabench serve --tls-cert FILE --tls-key FILE", "serve: --tls-cert and --tls-key go together")
	}
	read, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, inputError{fmt.Errorf("read certificate: %w", err), "both files are PEM: -----BEGIN CERTIFICATE-----, -----BEGIN PRIVATE KEY-----"}
	}
	return &read, nil
}

// tokenOf is the token in a file.
func tokenOf(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := bounded.ReadFile(file, bounded.Config)
	if err != nil {
		return "", inputError{fmt.Errorf("read token: %w", err), "--token-file names a file with one line"}
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", inputError{fmt.Errorf("read token: %s is not one word", file), "head -c 24 /dev/urandom | base64 > FILE"}
	}
	return token, nil
}

// address is what a browser opens. A token that is in a file is not shown.
func address(a net.Addr, encrypted bool, token string, show bool) string {
	tcp := a.(*net.TCPAddr)
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	text := "http"
	if encrypted {
		text = "https"
	}
	text += "://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port)) + "/"
	if token != "" {
		if !show {
			token = "TOKEN"
		}
		text += "?token=" + token
	}
	return text
}
