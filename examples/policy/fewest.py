#!/usr/bin/env python3
"""A placement policy for inabench: a job goes to one host, to one rack or anywhere, whatever fits first.

    [placement]
    policy = "fewest"

    [[policy]]
    name = "fewest"
    command = ["python3", "fewest.py"]

Reads lines from standard input and answers on standard output, as docs/POLICY.md says. It needs
Python 3.8 and nothing else, and is meant to be copied. `inabench policy check ./fewest.py` holds it
to the rules. Parameter servers go to the hosts with the fewest flows.
"""
import json
import sys


def choose(job, hosts, groups, free):
    """Hosts for a job, [(host, gpus), ...], or none if it has to wait; several are of the first group that has room."""
    exact = [h for h in hosts if free[h] >= job["gpus"]]
    if exact:  # the host on which it leaves least
        return [(min(exact, key=lambda h: free[h]), job["gpus"])]
    for group in groups:
        if sum(free[h] for h in group) < job["gpus"]:
            continue
        chosen, left = [], job["gpus"]
        for h in sorted(group, key=lambda h: -free[h]):  # sorted keeps the order of equals
            gpus = min(free[h], left)
            if gpus > 0:
                chosen.append((h, gpus))
                left -= gpus
        return chosen
    return []


def place(cluster, request):
    """The answer to a request."""
    free = {h["name"]: h["free"] for h in request["hosts"]}
    flows = {h["name"]: h["flows"] for h in request["hosts"]}
    hosts = [h["name"] for h in cluster["hosts"]]
    racks = [
        [h["name"] for h in cluster["hosts"] if h["switch"] == s["name"] and h["link"] != 0] for s in cluster["switches"]
    ]
    linked = sum(racks, [])  # a job on several hosts needs links
    jobs = []
    for job in request["waiting"]:
        workers = choose(job, hosts, racks + [linked], free)
        ps = []
        for _ in range(job["ps"] if len(workers) > 1 else 0):
            ps.append(min(linked, key=lambda h: flows[h]))
            flows[ps[-1]] += len(workers)
        for host, gpus in workers:
            free[host] -= gpus
            flows[host] += len(workers) > 1
        jobs.append({"id": job["id"], "workers": [{"host": h, "gpus": g} for h, g in workers], "ps": ps})
    return {"batch": request["batch"], "jobs": jobs}


cluster = None
for line in sys.stdin:
    message = json.loads(line)
    if "cluster" in message:
        if message["version"] != 1:
            sys.exit("fewest.py knows version 1, and this is %s" % message["version"])
        cluster = message["cluster"]
    else:
        print(json.dumps(place(cluster, message)), flush=True)
