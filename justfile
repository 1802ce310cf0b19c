# Short names for commands that also work typed by hand; `just` is never needed.

# list the recipes
default:
    @just --list

# build the one static binary
build:
    CGO_ENABLED=0 go build -trimpath -o inabench ./cmd/inabench

# what the README says
test:
    go test ./...

# the short tests with the race detector; needs a C compiler
race:
    go test -race -short ./...

# the suites that drivers and placement policies pass; skipping the emulation fails
conformance:
    INABENCH_REQUIRE=netns go test -run 'TestConformance|TestFirstFit' ./testbed/... ./placement/...

# two jobs on an emulated rack, no root
quickstart: build
    ./inabench run experiments/quickstart.toml

# every experiment that ships, on the emulated rack
experiments:
    INABENCH_SHIP=netns go test -count=1 -run TestShip -v -timeout 30m ./experiments

# speed: the switch, bring-up, water-filling
bench:
    go test -run '^$' -bench 'Switch|BringUp|WaterFill' -timeout 30m ./testbed/softswitch ./testbed/netns ./placement/flow

# fuzz one target for a minute: just fuzz ./testbed/ina FuzzParseHeader
fuzz pkg target:
    go test -run '^$' -fuzz '^{{target}}$' -fuzztime 60s {{pkg}}

# rewrite one package's golden files: just golden ./results; then read the difference
golden pkg:
    go test {{pkg}} -update
    git diff --stat

# format and vet
lint:
    gofmt -l .
    go vet ./...

# regenerate gRPC code after changing a .proto; needs protoc and
# go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12, and google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
proto:
    protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative $(git ls-files '*.proto')

# exactly what CI runs
check:
    bash .ci/run
