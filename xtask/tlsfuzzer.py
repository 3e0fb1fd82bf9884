"""Runs the scripts of tlsfuzzer that are listed in xtask/tlsfuzzer.txt.

usage: tlsfuzzer.py LIST SOURCE PORT LOGS     (xtask/tlsfuzzer.sh)

SOURCE is tlsfuzzer's, PORT what `one` was given (xtask/one.sh). One line for each script, with the
conversations that failed. What a script may fail at is in the list, with a reason and with how it
fails: a conversation that fails in another way fails the run, and so does an exception of which all
conversations that ran passed.
"""

import os
import pathlib
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

GCM = ["-C", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]
LISTENERS = {"new": 2, "rsa": 4}
# The longest takes two minutes on a busy machine.
TIMEOUT_S = 600
# What the scripts say, and our word for it.
OUTCOMES = [
    (r"Alert\(fatal, (\w+)\)", None),
    (r'does not match received "(\w+)"', None),
    (r"hello_retry_request", "retry"),
    (r"Handshake\(server_hello\)", "hello"),
    (r"from peer: ApplicationData", "content"),
    (r"did not send extension", "without"),
    (r"Timeout", "silence"),
    (r"closure from peer|Broken ?[Pp]ipe|ConnectionReset", "closed"),
]


def read(path):
    """The scripts to run, what each may fail at, and those to leave out."""
    runs, excepts, skips, reasons = [], {}, {}, {}
    for line in pathlib.Path(path).read_text().splitlines():
        verb, *rest = line.split(None, 1) or [""]
        if verb == "reason":
            name, text = rest[0].split(None, 1)
            reasons[name] = text
        elif verb == "run":
            listener, script, *options = rest[0].split()
            options = [one for word in options for one in (GCM if word == "GCM" else [word])]
            runs.append((script, listener, options))
        elif verb in ("except", "may"):
            reason, how, pattern = rest[0].split(None, 2)
            one = (reasons[reason], how, re.compile(pattern), verb == "except")
            excepts.setdefault(runs[-1][0], []).append(one)
        elif verb == "skip":
            script, reason = rest[0].split()
            skips[script] = reasons[reason]
        elif verb and not verb.startswith("#"):
            sys.exit(f"{path}: no such word: {verb}")
    return runs, excepts, skips


def outcome(text):
    """How a conversation failed, in a word: an alert's description, the message that came in place
    of another, or `closed`."""
    errors = re.findall(r"^(\w*Error): ?(.*)$", text, re.M)
    if not errors:
        return "unknown"
    kind, told = errors[-1]
    for known, word in OUTCOMES:
        if found := re.search(known, f"{kind}: {told}"):
            return found[1] if found.groups() else word
    return "unknown"


def conversations(text):
    """The conversations that ran, some more than once: name, and how it failed, or none."""
    found = []
    for part in re.split(r"^(?=.+\.\.\.$)", text, flags=re.M):
        name, _, rest = part.partition("...\n")
        if rest and "\n" not in name:
            name = re.sub(r'^"(.*)" repeat \d+$', r"\1", name.rstrip())
            found.append((name, None if re.search(r"^OK$", rest, re.M) else outcome(rest)))
    return found


def run(one, excepts, source, port, logs, tally):
    """The line about a script, and whether it passed. Its conversations are counted in `tally`."""
    script, listener, options = one
    words = [sys.executable, f"scripts/test-{script}.py", "-h", "localhost"]
    words += ["-p", str(port + LISTENERS[listener]), *options]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    try:
        done = subprocess.run(
            words, cwd=source, env=environment, timeout=TIMEOUT_S, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired:
        return f"FAILED {script}: not done after {TIMEOUT_S} s", False
    (logs / f"{script}.log").write_text(done.stdout)
    counts = dict(re.findall(r"^(TOTAL|PASS|XFAIL|FAIL): (\d+)", done.stdout, re.M))
    if "TOTAL" not in counts:
        return f"FAILED {script}: it did not run: see its log", False
    ran, may = conversations(done.stdout), excepts.get(script, [])
    # Some scripts show errors that they wait for: those pass.
    if counts["FAIL"] == "0":
        ran = [(name, None) for name, _ in ran]
    ends = [(name, how) for name, how in ran if how]
    bad = []
    for name, how in ends:
        for reason, known, pattern, _ in may:
            if known == how and pattern.fullmatch(name):
                tally[reason, script] += 1
                break
        else:
            bad.append(f"{name}: {how}")
    excepted = len(ends) - len(bad)
    for _, known, pattern, always in may:
        matched = [how for name, how in ran if pattern.fullmatch(name)]
        if always and matched and known not in matched:
            bad.append(f"{known} {pattern.pattern}: listed, and none of them ends like that")
    if len(ends) < int(counts["FAIL"]) or (done.returncode != 0 and not ends):
        bad.append(f"{counts['FAIL']} failed, it says: see its log")
    passed = int(counts["PASS"]) + int(counts["XFAIL"])
    tally["passed", script] += passed
    line = f"{script}: {passed} passed"
    if excepted:
        line += f", {excepted} with a reason"
    if bad or passed == 0:
        return "\n    ".join([f"FAILED {line}, {len(bad)} failed", *bad]), False
    return f"ok {line}", True


def main():
    """Runs all of them, two at once."""
    path, source, port, logs = sys.argv[1:]
    source, logs = pathlib.Path(source).resolve(), pathlib.Path(logs).resolve()
    runs, excepts, skips = read(path)
    logs.mkdir(parents=True, exist_ok=True)
    there = {file.name[len("test-") : -len(".py")] for file in source.glob("scripts/test-*.py")}
    known = {script for script, _, _ in runs} | set(skips)
    unknown, gone = sorted(there - known), sorted(known - there)
    tally = Counter()
    with ThreadPoolExecutor(2) as pool:
        lines = pool.map(lambda one: run(one, excepts, source, int(port), logs, tally), runs)
        results = []
        for line, passed in lines:
            print(line, flush=True)
            results.append(passed)
    for script in unknown:
        print(f"FAILED {script} is new, and in no list: add it to {path}")
    for script in gone:
        print(f"FAILED {script} is listed and not there")
    for reason in dict.fromkeys(reason for reason, _ in tally):
        scripts = [script for of, script in tally if of == reason]
        count = sum(tally[reason, script] for script in scripts)
        print(f"{count} {reason}: {'all' if reason == 'passed' else ', '.join(scripts)}")
    good = sum(results)
    print(f"{good} of {len(results)} scripts pass, {len(skips)} are left out")
    sys.exit(0 if good == len(results) and not unknown and not gone else 1)


main()
