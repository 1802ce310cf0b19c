# Short recipes; each also works typed by hand. `just` is never needed.

# build the one static binary
build:
    CGO_ENABLED=0 go build -trimpath -o inabench ./cmd/inabench

# what the README says
test:
    go test ./...

# the same with the race detector
race:
    go test -race ./...

# the whole main job on this machine, no root
quickstart: build
    ./inabench run experiments/quickstart.toml

# every experiment that ships, on the emulated rack
experiments: build
    INABENCH_SHIP=netns go test -run TestShip -v -timeout 30m ./experiments

# speed: switch, bring-up, water-filling
bench:
    go test -run '^$' -bench 'Switch|BringUp|WaterFill' -timeout 30m ./testbed/softswitch ./testbed/netns ./placement/flow

# fuzz one target for a minute: just fuzz ./testbed/ina FuzzHeader
fuzz pkg target:
    go test -run '^$' -fuzz '^{{target}}$' -fuzztime 60s {{pkg}}

# rewrite golden files after reading the difference
golden:
    go test ./... -run 'Golden|Script|Render' -update

# exactly what CI runs
check:
    bash .ci/run
