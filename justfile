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

# the same with all that takes long
proofs:
    INABENCH_PROOFS=1 go test -timeout 60m ./...

# the tests with the race detector; needs a C compiler
race:
    go test -race ./...

# the suites that drivers and placement policies pass; skipping the emulation fails
conformance:
    INABENCH_REQUIRE=netns go test -run 'TestConformance|TestFirstFit' ./testbed/... ./placement/...

# two jobs on an emulated rack, no root
quickstart: build
    ./inabench run experiments/quickstart.toml

# every experiment that ships, on the emulated rack
experiments:
    INABENCH_SHIP=netns go test -count=1 -run TestShip -v -timeout 60m ./experiments

# short nights on emulated racks: what is said of them when nothing changes, and when 5 % of a
# cable, of the switch or of a worker are taken away
nights n="30":
    INABENCH_NIGHTS={{n}} go test -count=1 -run TestNights -v -timeout 4h ./experiments/suite

# run and disturb experiments again and again, and count what is left, lost or wrong: just soak 1000
soak n="30" seed="1":
    INABENCH_SOAK={{n}} INABENCH_SOAK_SEED={{seed}} go test -count=1 -run 'TestSoak$' -v -timeout 6h ./cmd/cli

# speed: the switch, bring-up, water-filling
bench:
    go test -run '^$' -bench 'Switch|BringUp|WaterFill' -timeout 30m ./testbed/softswitch ./testbed/netns ./placement/flow

# fuzz one target for a minute: just fuzz ./testbed/ina FuzzParseHeader
fuzz pkg target:
    go test -run '^$' -fuzz '^{{target}}$' -fuzztime 60s {{pkg}}

# fuzz every target for a while each: just fuzz-all 60s; a table of executions
fuzz-all each="60s":
    bash .ci/fuzz {{each}}

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

# what takes long: all proofs, the race detector everywhere, all that ships on the emulated rack
nightly:
    bash .ci/nightly

# what a release consists of, into dist/: programs, packages, bill of materials, checksums
release:
    .ci/release

# compile the P4 program for BMv2 with an installed p4c; what it writes is committed
p4:
    testbed/p4/compile.sh

# the experiments that BMv2 carries on two cores; needs simple_switch_grpc on PATH
bmv2: build
    ./inabench run --switch bmv2 --set emulation.factor=2500 --set measure.duration=12s --set job.A.duration=20s --set job.B.duration=16s experiments/quickstart.toml
    ./inabench run --switch bmv2 --set emulation.factor=2500 --set measure.duration=8s experiments/pat-sweep.toml
    ./inabench run --switch bmv2 --set emulation.factor=20000 --set measure.warmup=10s --set measure.duration=9s --set job.A.duration=80s --set job.B.start=20s --set job.B.duration=80s --set job.C.start=40s --set job.C.duration=40s --set job.D.start=60s --set job.D.duration=60s experiments/two-racks.toml
