"""Runs the scripts of tlsfuzzer that are listed in xtask/tlsfuzzer.txt.

usage: tlsfuzzer.py LIST SOURCE PORT LOGS     (xtask/tlsfuzzer.sh)

SOURCE is tlsfuzzer's, PORT what `one` was given (xtask/one.sh). One line for each script, with the
conversations that failed. What a script may fail at is in the list, with a reason.
"""

import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

GCM = ["-C", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]
LISTENERS = {"new": 2, "rsa": 4}
# The longest takes two minutes on a busy machine.
TIMEOUT_S = 600


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
        elif verb == "except":
            script, reason, pattern = rest[0].split(None, 2)
            excepts.setdefault(script, []).append((reasons[reason], pattern))
        elif verb == "skip":
            script, reason = rest[0].split()
            skips[script] = reasons[reason]
        elif verb and not verb.startswith("#"):
            sys.exit(f"{path}: no such word: {verb}")
    return runs, excepts, skips


def failed(text):
    """The names of conversations that failed, or that passed though the script said otherwise."""
    names = []
    for part in text.split("\nFAILED:\n")[1:]:
        for line in part.splitlines():
            found = re.match(r"\t(['\"])(.*)\1$", line)
            if not found:
                break
            names.append(found[2])
    return names


def run(one, excepts, source, port, logs):
    """The line about a script, and whether it passed."""
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
    names = failed(done.stdout)
    may = excepts.get(script, [])
    bad = [name for name in names if not any(re.fullmatch(known, name) for _, known in may)]
    passed, excepted = int(counts["PASS"]) + int(counts["XFAIL"]), len(names) - len(bad)
    line = f"{script}: {passed} passed"
    if excepted:
        line += f", {excepted} with a reason"
    # Without a name it cannot be known what failed.
    if bad or (done.returncode != 0 and not names) or passed == 0:
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
    with ThreadPoolExecutor(2) as pool:
        lines = pool.map(lambda one: run(one, excepts, source, int(port), logs), runs)
        results = []
        for line, passed in lines:
            print(line, flush=True)
            results.append(passed)
    for script in unknown:
        print(f"FAILED {script} is new, and in no list: add it to {path}")
    for script in gone:
        print(f"FAILED {script} is listed and not there")
    good = sum(results)
    print(f"{good} of {len(results)} scripts pass, {len(skips)} are left out")
    sys.exit(0 if good == len(results) and not unknown and not gone else 1)


main()
