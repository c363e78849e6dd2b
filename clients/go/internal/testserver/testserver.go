// Package testserver starts servers for tests, on 127.0.0.1.
package testserver

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server is a server of a test.
type Server struct {
	t       testing.TB
	Port    int
	busPort int
	folder  string
	options []string
	mu      sync.Mutex
	process *exec.Cmd
	isNode  bool
}

// Start starts a server with the module.
func Start(t testing.TB, options ...string) *Server {
	return start(t, false, append([]string{"--loadmodule", module(t)}, options...))
}

// Plain starts a server without the module.
func Plain(t testing.TB, options ...string) *Server { return start(t, false, options) }

// Node starts a node of a cluster, which has no slots yet.
func Node(t testing.TB, options ...string) *Server {
	return start(t, true, append([]string{"--loadmodule", module(t)}, options...))
}

// Cluster starts two nodes that have half of the slots each.
func Cluster(t testing.TB) (one, two *Server) {
	one, two = Node(t), Node(t)
	one.Do("CLUSTER", "ADDSLOTSRANGE", "0", "8191")
	two.Do("CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
	one.Do("CLUSTER", "SET-CONFIG-EPOCH", "1")
	two.Do("CLUSTER", "SET-CONFIG-EPOCH", "2")
	one.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(two.Port), strconv.Itoa(two.busPort))
	for _, node := range []*Server{one, two} {
		Eventually(t, "a cluster", func() bool {
			return strings.Contains(node.Do("CLUSTER", "INFO"), "cluster_state:ok") && strings.Contains(node.Do("CLUSTER", "INFO"), "cluster_known_nodes:2")
		})
	}
	return one, two
}

// Sentinel starts a sentinel that watches a master by the name "locks".
func Sentinel(t testing.TB, master *Server) *Server {
	s := prepare(t)
	file := filepath.Join(s.folder, "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\nsentinel monitor locks 127.0.0.1 %d 1\n"+
		"sentinel down-after-milliseconds locks 1000\nsentinel failover-timeout locks 2000\n", s.Port, master.Port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.options = []string{file, "--sentinel"}
	s.Restart()
	return s
}

func module(t testing.TB) string {
	path := os.Getenv("MODULE")
	if path == "" {
		t.Skip("MODULE, the path of the module, is not set")
	}
	return path
}

func program() string {
	if path := os.Getenv("SERVER"); path != "" {
		return path
	}
	return "redis-server"
}

func prepare(t testing.TB) *Server {
	s := &Server{t: t, folder: t.TempDir(), Port: freePort(t), busPort: freePort(t)}
	t.Cleanup(s.Stop)
	return s
}

func start(t testing.TB, isNode bool, options []string) *Server {
	t.Helper()
	s := prepare(t)
	s.isNode, s.options = isNode, options
	s.Restart()
	return s
}

// Restart starts the process, again after Stop.
func (s *Server) Restart() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	args := s.options
	if len(args) == 0 || args[len(args)-1] != "--sentinel" {
		args = append([]string{"--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--dir", s.folder, "--save", ""}, args...)
	}
	if s.isNode {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(s.busPort))
	}
	process := exec.Command(program(), args...)
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := process.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.process = process
	lines, log := bufio.NewScanner(out), ""
	for lines.Scan() {
		log += lines.Text() + "\n"
		if strings.Contains(log, "Ready to accept connections") || strings.Contains(log, "Sentinel ID is") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return
		}
	}
	s.t.Fatalf("the server does not start: %s", log)
}

// Stop kills the process.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && s.process.ProcessState == nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
	}
}

// Signal stops the process without a sign to its clients, or lets it go on.
func (s *Server) Signal(signal syscall.Signal) { _ = s.process.Process.Signal(signal) }

// Address is that of the server.
func (s *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(s.Port) }

// URL is the address for redislock.Open.
func (s *Server) URL() string { return "redis://" + s.Address() }

// Do sends a command on a connection of its own, and returns the reply as text: a list has a line for each item.
func (s *Server) Do(words ...string) string {
	s.t.Helper()
	reply, err := s.Try(words...)
	if err != nil {
		s.t.Fatalf("%v: %v", words, err)
	}
	return reply
}

// Try is Do for a server that may be away.
func (s *Server) Try(words ...string) (string, error) {
	link, err := net.Dial("tcp", s.Address())
	if err != nil {
		return "", err
	}
	defer link.Close()
	_ = link.SetDeadline(time.Now().Add(10 * time.Second))
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(link, text); err != nil {
		return "", err
	}
	return read(bufio.NewReader(link))
}

func read(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	count, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '$':
		if count < 0 {
			return "", nil
		}
		text := make([]byte, count+2)
		_, err := io.ReadFull(in, text)
		return string(text[:count]), err
	case '*':
		items := []string{}
		for range count {
			item, err := read(in)
			if err != nil {
				return "", err
			}
			items = append(items, item)
		}
		return strings.Join(items, "\n"), nil
	}
	return line[1:], nil
}

// Info returns a field of LOCK.INFO.
func (s *Server) Info(key, field string) string {
	items := strings.Split(s.Do("LOCK.INFO", key), "\n")
	for n, item := range items[:len(items)-1] {
		if item == field {
			return items[n+1]
		}
	}
	return ""
}

// Calls returns how often a command was called.
func (s *Server) Calls(command string) int {
	match := regexp.MustCompile(`(?m)^cmdstat_` + regexp.QuoteMeta(command) + `:calls=(\d+)`).FindStringSubmatch(s.Do("INFO", "commandstats"))
	if match == nil {
		return 0
	}
	count, _ := strconv.Atoi(match[1])
	return count
}

// Connections returns the ids of the connections of the package.
func (s *Server) Connections() []string {
	ids := []string{}
	for _, match := range regexp.MustCompile(`id=(\d+) .*name=redis-lock-client`).FindAllStringSubmatch(s.Do("CLIENT", "LIST"), -1) {
		ids = append(ids, match[1])
	}
	return ids
}

// Cut cuts the connections of the package.
func (s *Server) Cut() {
	for _, id := range s.Connections() {
		s.Do("CLIENT", "KILL", "ID", id)
	}
}

// Eventually waits until a condition holds. A sentinel that was stalled does nothing for 30 s.
func Eventually(t testing.TB, what string, isTrue func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !isTrue(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// freePort returns a port that no program uses, below those of outgoing connections.
func freePort(t testing.TB) int {
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		if listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}
