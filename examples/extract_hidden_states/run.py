#!/usr/bin/env python3
"""Runs the example pipeline with everything that can go wrong on purpose, and measures it.

A folder of its own, an S3 server on loopback, an agent, one extractor per GPU, a console
in tmux. Results go to OUT/results.json, screens, snapshots and what the driver said
beside it. Only processes that this script started are signalled.

parts: probe      values and cost of reading the GPUs, compared with nvidia-smi
       reference  an undisturbed run without pipedeck: rate, bytes, equality with a plain forward pass
       pipeline   the run with kill -9 of agent and worker and a restart from the keyboard, and its oracle
       kill       a worker that holds memory is killed; when the memory is free and when that is said
       fork       a child that keeps memory by a double fork
       states     loading, spinning, waiting, out of memory
       healthy    a slow healthy run, looked at once a second: no stall may be told; OUT/verdict.json
       session    start, watch, restart, kill and pivot from the keyboard; each moment's screen and snapshot
       two        two GPUs, one worker killed: the other one does not notice (not among those of a whole run)
"""
import argparse
import glob
import json
import os
import re
import shutil
import signal
import sys
import threading
import time

import healthy
import session
from rig import HERE, LAYERS, MIB, Console, Deck, Helper, Run, cpu_seconds, digest, extract_stage, spec, summary, trouble_stage, used, wait


def smi(run):
    keys = "uuid,memory.used,memory.reserved,memory.total,utilization.gpu,power.draw,enforced.power.limit,temperature.gpu,clocks.sm,clocks.mem"
    _, out, _ = run.call("nvidia-smi", "--query-gpu=" + keys, "--format=csv,noheader,nounits")
    rows = [dict(zip(keys.split(","), line.split(", "))) for line in out.strip().splitlines()]
    return rows, out


def compare(run, helper, name):
    """The helper's values beside nvidia-smi's of the same second."""
    a = helper.ask()
    rows, raw = smi(run)
    b = helper.ask()
    run.record(f"{name}.nvml.json", json.dumps([a, b], indent=1))
    run.record(f"{name}.smi.csv", raw)
    out = []
    for g, h, row in zip(a["gpus"], b["gpus"], rows):
        def pair(key, ours, theirs, scale=1.0):
            try:
                return {"key": key, "nvml": [None if v is None else round(v / scale, 2) for v in ours], "smi": float(theirs)}
            except ValueError:
                return {"key": key, "nvml": list(ours), "smi": theirs}
        m, n = g["more"], h["more"]
        out += [pair("memory.used", (g["mem_used_bytes"], h["mem_used_bytes"]), row["memory.used"], MIB),
                pair("memory.reserved", (m["mem_reserved_bytes"], n["mem_reserved_bytes"]), row["memory.reserved"], MIB),
                pair("memory.total", (g["mem_total_bytes"], h["mem_total_bytes"]), row["memory.total"], MIB),
                pair("utilization", (g["util_percent"], h["util_percent"]), row["utilization.gpu"]),
                pair("power", (g["power_watts"], h["power_watts"]), row["power.draw"]),
                pair("power.limit", (m["power_limit_watts"], n["power_limit_watts"]), row["enforced.power.limit"]),
                pair("temperature", (g["temp_celsius"], h["temp_celsius"]), row["temperature.gpu"]),
                pair("clocks.sm", (m["sm_clock_mhz"], n["sm_clock_mhz"]), row["clocks.sm"]),
                pair("clocks.mem", (m["mem_clock_mhz"], n["mem_clock_mhz"]), row["clocks.mem"])]
    return out


def part_probe(run):
    if not run.real:
        return
    h = Helper(run)
    begin = time.monotonic()
    first = h.ask()
    run.note("probe", first_ms=first["took_ms"], until_first_ms=round(1000 * (time.monotonic() - begin), 1), driver=first["driver"], gpus=len(first["gpus"]))
    time.sleep(0.2)
    took, walls = [], []
    for _ in range(60):
        begin = time.monotonic()
        took.append(h.ask()["took_ms"])
        walls.append(1000 * (time.monotonic() - begin))
        time.sleep(0.05)
    took.sort(), walls.sort()
    run.note("probe", sample_ms={"median": took[30], "p95": took[57], "max": took[-1]}, question_ms={"median": round(walls[30], 3), "p95": round(walls[57], 3)})
    before = cpu_seconds(h.p.pid)
    for _ in range(15):
        h.ask()
        time.sleep(1)
    run.note("probe", helper_cpu_percent_at_1hz=round(100 * (cpu_seconds(h.p.pid) - before) / 15, 3), idle=compare(run, h, "idle"))
    a = h.ask()
    run.note("probe", missing=[g["more"]["missing"] for g in a["gpus"]], activity=[g["more"]["activity"] for g in a["gpus"]])
    for name, argv in {"smi-L.txt": ["-L"], "smi-q.xml": ["-q", "-x"], "smi.txt": []}.items():
        run.record(name, run.call("nvidia-smi", *argv)[1])
    h.close()


def part_data(run):
    """The model and the samples that the other parts use."""
    begin = time.monotonic()
    run.samples = os.path.join(run.dir, "samples.jsonl")
    run.call(sys.executable, os.path.join(HERE, "make_samples.py"), "--out", run.samples, "--count", str(run.a.samples), "--too-long", "3")
    if run.real:
        code, out, errs = run.call(sys.executable, os.path.join(HERE, "make_model.py"), "--out", os.path.join(run.dir, "model"), timeout=300)
        run.note("data", model=out.strip() or errs[-500:])
        if code:
            raise RuntimeError(errs[-2000:])
    run.note("data", seconds=round(time.monotonic() - begin, 1))


def part_reference(run):
    """What each file must be, by a run that nothing disturbs."""
    out = os.path.join(run.dir, "reference")
    keep = 24  # files that are compared with a plain forward pass
    argv = [sys.executable, os.path.join(HERE, "extract.py"), "--model", os.path.join(run.dir, "model") if run.real else "0.02", "--data", run.samples,
            "--out", out, "--layers", LAYERS, "--progress", os.path.join(run.dir, "reference.json")]
    if not run.real:
        argv += ["--backend", "fake_states"]
    begin = time.monotonic()
    p = run.popen(*argv, log="reference.log", cwd=HERE)
    run.hashes, first, last, h, loaded = {}, None, None, None, None
    while True:
        ended = p.poll() is not None
        for path in sorted(glob.glob(os.path.join(out, "hs_*.safetensors"))):
            name = os.path.basename(path)
            if name in run.hashes:
                continue
            first = first or time.monotonic()
            run.hashes[name] = digest(path)
            last = os.stat(path).st_mtime
            if int(re.search(r"\d+", name).group()) >= keep:
                os.unlink(path)
        if run.real and h is None and len(run.hashes) > 20:
            h = Helper(run)
            h.ask()
            time.sleep(0.3)
            loaded = compare(run, h, "load")
            run.record("apps.csv", run.call("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv,noheader,nounits")[1])
            run.note("reference", processes=h.ask()["gpus"][0]["processes"], pid=p.pid, activity=h.ask()["gpus"][0]["more"]["activity"])
            h.close()
        if ended and len(run.hashes) >= len(glob.glob(os.path.join(out, "hs_*.safetensors"))):
            break
        time.sleep(0.02)
    with open(os.path.join(run.dir, "reference.json")) as f:
        progress = json.load(f)
    run.note("reference", exit=p.returncode, seconds=round(time.monotonic() - begin, 1), files=len(run.hashes), loaded=loaded, progress=progress)
    with open(os.path.join(run.dir, "reference.log")) as f:
        run.say(f.read()[-1500:])
    if first and len(run.hashes) > 100:
        run.note("reference", samples_per_second=round(len(run.hashes) / (time.monotonic() - first), 1))
    if not run.real:
        return
    check = [sys.executable, os.path.join(HERE, "check.py"), "--model", os.path.join(run.dir, "model"), "--data", run.samples, "--layers", LAYERS, "--count", str(keep)]
    code, said, errs = run.call(*check, "--out", out, timeout=200)
    run.note("reference", size=os.path.getsize(os.path.join(out, "hs_0.safetensors")), batched_equal=code, batched=json.loads(said or "{}"), check_errors=errs[-300:] if code else "")
    run.call("head", "-n", "8", run.samples)
    single = os.path.join(run.dir, "single.jsonl")
    with open(run.samples) as f, open(single, "w") as g:
        g.writelines(f.readline() for _ in range(8))
    run.call(*argv[:4], "--data", single, "--out", out + "1", "--layers", LAYERS, "--batch", "1", timeout=200)
    code, said, errs = run.call(*check[:4], "--data", single, "--layers", LAYERS, "--out", out + "1", "--exact", timeout=200)
    run.note("reference", one_by_one_equal=code, one_by_one=json.loads(said or "{}"))
    shutil.rmtree(out)


def part_pipeline(run):
    n = run.a.samples
    d = Deck(run, "hidden-states", spec(run, "hidden-states", extract_stage(run, run.samples, n + 3)))
    _, text, _ = d.pd("check")
    run.record("check.txt", text)
    run.say(text[-1800:])
    begin = time.monotonic()
    d.must("start", "extract")
    d.watch()
    wait("a snapshot", d.stage, 30)
    pid = wait("the agent's pid", d.agent_pid, 10)
    console = Console(run, d) if shutil.which("tmux", path=run.env["PATH"]) else None

    def verified():
        st = d.stage()
        return (st["outputs"][0]["verified_files"] or 0) if st else 0

    def worker():
        return d.stage()["workers"][0]

    wait("an output", lambda: (d.stage()["done"] or 0) > 0, 120)
    run.note("pipeline", loading_seconds=round(time.monotonic() - begin, 1))
    if console:
        wait("the console shows the worker", lambda: "extract/0" in console.screen(), 20)
        console.screen("console-running")
    wait("a fifth is done", lambda: (d.stage()["done"] or 0) >= n // 5, 180)
    run.note("pipeline", agent_killed_at={"done": d.stage()["done"], "verified": verified()})
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    wait("another agent answers", lambda: d.agent_pid() not in (None, pid) and d.snap()["health"] != "stale", 60)
    run.note("pipeline", agent_back_seconds=round(time.monotonic() - killed, 2))
    wait("two fifths are done", lambda: (d.stage()["done"] or 0) >= 2 * n // 5 and worker()["pid"], 180)
    victim = worker()["pid"]
    run.note("pipeline", worker_killed_at={"done": d.stage()["done"], "verified": verified()})
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    wait("another worker lives", lambda: worker()["pid"] not in (None, victim), 60)
    run.note("pipeline", worker_back_seconds=round(time.monotonic() - killed, 2))
    wait("three fifths are done", lambda: (d.stage()["done"] or 0) >= 3 * n // 5 and worker()["pid"], 180)
    if console:
        before = worker()["pid"]
        console.type(":restart extract")
        console.press("Enter")
        wait("the plan asks for the deck's name", lambda: "hidden-states" in console.screen() and "type" in console.screen().lower(), 20)
        console.screen("console-plan")
        time.sleep(0.8)
        console.type("hidden-states")
        console.press("Enter")
        wait("the restarted worker lives", lambda: worker()["pid"] not in (None, before), 60)
        console.screen("console-restarted")
        run.note("pipeline", restarted_at={"done": d.stage()["done"], "verified": verified()})
    wait("all are done", lambda: (d.stage()["done"] or 0) >= n, 240)
    made = time.monotonic()
    wait("all are verified", lambda: verified() >= n and (d.stage()["outputs"][0]["local_files"] or 0) == 0, 240)
    run.note("pipeline", proven_and_removed_seconds_after_the_last_output=round(time.monotonic() - made, 1))
    st = d.stage()
    run.note("pipeline", seconds=round(time.monotonic() - begin, 1), stage=st["state"], done=st["done"], skipped=st["skipped"], restarts=st["workers"][0]["restarts"])
    if console:
        time.sleep(1)
        console.screen("console-done")
        console.close()
    run.record("snapshot-done.json", json.dumps(d.snap(), indent=1))
    running = [s for s in d.snaps if s["nodes"][0]["stages"][0]["workers"][0]["state"] == "running" and s["nodes"][0]["gpus"]]
    if running:
        run.record("snapshot-running.json", json.dumps(running[len(running) // 2], indent=1))
    oracle(run, d)
    run.note("pipeline", **summary(d))
    d.end()


def oracle(run, d):
    """Every file that must be there is there, byte for byte, and no other."""
    root = os.path.join(run.buckets, d.name, "r1", "hidden_states")
    have = {os.path.basename(p): p for p in glob.glob(os.path.join(root, "*.safetensors"))}
    wrong = [n for n, h in run.hashes.items() if n not in have or digest(have[n]) != h]
    code, out, _ = d.pd("coverage", "--ids", "--json")
    stored = len(json.loads(out)["outputs"][0]["ids"]["stored"]) if out else None
    run.note("pipeline", objects=len(have), expected=len(run.hashes), lost_or_different=len(wrong), examples=wrong[:5], not_expected=len(set(have) - set(run.hashes)),
             coverage_exit=code, stored_ids=stored, local_left=len(glob.glob(os.path.join(d.dir, "data/hidden_states/*"))))


def when_free(h, level, seconds):
    """Looks at the GPUs every few milliseconds: when their memory came back."""
    end, seen = time.time() + seconds, []
    while time.time() < end:
        seen.append((time.time(), used(h.ask())))
        if seen[-1][1] <= level:
            return seen
        time.sleep(0.002)
    return seen


def part_kill(run):
    if not run.real:
        return
    d = Deck(run, "hold", spec(run, "hold", trouble_stage(run, ["hold", "50"])))
    d.stage_names = ["trouble"]
    h = Helper(run)
    base = used(h.ask())
    d.must("start", "trouble")
    d.watch()
    wait("50 GB are held", lambda: used(h.ask()) > 50e9, 60)
    wait("and seen", lambda: d.node() and any((g["mem_used_bytes"] or 0) > 50e9 for g in d.node()["gpus"]), 10)
    gpu = d.node()["gpus"][0]
    run.note("kill", held=gpu["mem_used_bytes"], processes=gpu["processes"])
    seen = []
    watcher = threading.Thread(target=lambda: seen.extend(when_free(h, base + 256 * MIB, 30)))
    watcher.start()
    begin = time.time()
    code, out, errs = d.kill("trouble")
    ended = time.time()
    watcher.join()
    run.record("kill.txt", out + errs)
    run.note("kill", exit=code, command_seconds=round(ended - begin, 3), free_after=round(seen[-1][0] - begin, 3), free=seen[-1][1], said=errs.strip()[-900:])
    _, history, _ = d.pd("history", "--json")
    proofs = [(r["at"], c["observed"], c["at"]) for r in json.loads(history)["records"] if r["kind"] == "verified" for c in (r.get("data") or []) if isinstance(c, dict) and c.get("name", "").startswith("GPU")]
    freed = time.strftime("%H:%M:%S", time.gmtime(seen[-1][0])) + f"{seen[-1][0] % 1:.3f}"[1:]
    run.note("kill", memory_back_at=freed, proofs=proofs[-2:])
    h.close()
    d.end()


def part_fork(run):
    if not run.real:
        return
    d = Deck(run, "fork", spec(run, "fork", trouble_stage(run, ["fork", "20"])))
    d.stage_names = ["trouble"]
    h = Helper(run)
    d.must("start", "trouble")
    d.watch()
    wait("21 GB are held", lambda: used(h.ask()) > 21e9, 60)
    time.sleep(2)
    gpu = d.node()["gpus"][0]
    run.note("fork", processes=gpu["processes"])
    worker = d.stage()["workers"][0]["pid"]
    orphan = [p["pid"] for p in gpu["processes"] if p["pid"] != worker]
    # Without its shim, an orphan with a clean environment is found by the GPU only.
    shim = int(open(f"/proc/{worker}/stat").read().rsplit(")", 1)[1].split()[1])
    if b"shim" in open(f"/proc/{shim}/cmdline", "rb").read():
        os.kill(shim, signal.SIGKILL)
        time.sleep(0.5)
    begin = time.time()
    code, out, errs = d.kill("trouble", timeout=150)
    run.record("fork.txt", out + errs)
    left = used(h.ask())
    run.note("fork", worker=worker, orphan=orphan, exit=code, seconds=round(time.time() - begin, 1), still_held=left, said=errs.strip()[-1200:])
    code, out, errs = d.pd("start", "trouble", timeout=150)
    run.record("fork-start.txt", out + errs)
    run.note("fork", start_beside_it=code, start_said=errs.strip()[-600:])
    for pid in orphan:  # this script's own grandchild
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    h.close()
    d.end()


def part_states(run):
    if not run.real:
        return
    d = Deck(run, "states", spec(run, "states", trouble_stage(run, ["by-rank", "load:30", "spin", "wait", "oom"], per_gpu=4)))
    d.stage_names = ["trouble"]
    d.must("start", "trouble")
    d.watch()
    wait("a snapshot", d.stage, 30)
    begin = time.monotonic()
    console = Console(run, d) if shutil.which("tmux", path=run.env["PATH"]) else None
    seen = {}
    while time.monotonic() - begin < 55:
        for w in d.stage()["workers"]:
            key = f"{w['rank']}:{w['state']}"
            if key not in seen or "spins" in (w["state_reason"] or "") or "waits" in (w["state_reason"] or ""):
                first = seen.get(key, [round(time.monotonic() - begin, 1)])[0]
                seen[key] = [first, w["state_reason"]]
        time.sleep(0.2)
    run.note("states", seen=seen)
    if console:
        console.screen("states")
        for rank in range(2):
            console.press("j") if rank else None
            console.press("Enter")
            time.sleep(1.5)
            console.screen(f"states-detail-{rank}")
            console.press("Escape")
            time.sleep(0.5)
        console.close()
    run.record("snapshot-states.json", json.dumps(d.snap(), indent=1))
    d.end()


def part_two(run):
    """Two GPUs: both are used; one worker is killed, the other one does not notice."""
    d = Deck(run, "two", spec(run, "two", extract_stage(run, run.samples, run.a.samples + 3, more=["--pause", "0.3"], stall="10s")))
    d.must("start", "extract")
    d.watch()
    wait("all workers run", lambda: d.stage() and len(d.stage()["workers"]) > 1 and all(w["state"] == "running" for w in d.stage()["workers"]), 120)
    time.sleep(3)

    def rows():
        n = d.node()
        by = {g["uuid"]: [p["worker"] for p in g["processes"] or []] for g in n["gpus"]}
        return [{"id": w["id"], "gpu": w["gpu"], "pid": w["pid"], "done": w["done"], "rate": w["samples_per_second"], "memory": w["gpu_mem_bytes"], "on_its_gpu": by.get(w["gpu_uuid"])}
                for w in n["stages"][0]["workers"]]

    before = rows()
    os.kill(before[0]["pid"], signal.SIGKILL)
    wait("another worker 0", lambda: rows()[0]["pid"] not in (None, before[0]["pid"]), 60)
    wait("it runs", lambda: d.stage()["workers"][0]["state"] in ("running", "done", "idle"), 90)
    time.sleep(2)
    after = rows()
    run.note("two", before=before, after=after, other_undisturbed=after[1]["pid"] == before[1]["pid"] and after[1]["done"] > before[1]["done"])
    run.record("snapshot-two.json", json.dumps(d.snap(), indent=1))
    wait("all are verified", lambda: (d.stage()["outputs"][0]["verified_files"] or 0) >= run.a.samples, 200)
    run.note("two", **summary(d))
    d.end()


def parts():
    """Every part by its name, in the order of a whole run."""
    own = [part_probe, part_reference, part_pipeline, part_kill, part_fork, part_states, healthy.part_healthy, session.part_session, part_two]
    return {f.__name__.removeprefix("part_"): f for f in own}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", help="folder with pipedeck, pipedeck-gpu and versitygw")
    p.add_argument("--out", required=True)
    p.add_argument("--work", default="", help="working folder, kept; a temporary one otherwise")
    p.add_argument("--samples", type=int, default=2000)
    p.add_argument("--seconds", type=int, default=900, help="the time that there is: parts are left out, or shortened, when it ends")
    p.add_argument("--healthy", type=int, default=600, help="seconds of the healthy run")
    p.add_argument("--parts", default=",".join(p for p in parts() if p != "two"))
    p.add_argument("--background", action="store_true", help="go on after this command, and the session that gave it, has ended; its log is OUT/run.log")
    p.add_argument("--collect", action="store_true", help="print the verdict of a healthy run in OUT so far; 0 no false stall, 1 a false stall, 3 nothing covered yet")
    p.add_argument("--await", dest="patience", type=int, default=0, help="with --collect: seconds to wait for the run's end")
    p.add_argument("--rehearse", action="store_true", help="without GPUs, with a stand-in for the model")
    p.add_argument("--library", default="", help="with --rehearse: folder of a stand-in for the driver's library")
    a = p.parse_args()
    if not a.collect and not a.bin:
        p.error("--bin is required")
    return a


def main():
    a = arguments()
    if a.collect:
        return healthy.collect(a.out, a.patience)
    if a.background:
        return healthy.detach(a.out)
    run = Run(a)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run.store()
        names = a.parts.split(",")
        if any(x in names for x in ("reference", "pipeline", "two")):
            part_data(run)
        for name in names:
            if run.left() < 25:
                run.note(name, left_out="no time was left")
                continue
            begin = time.monotonic()
            run.say(f"--- {name}")
            try:
                parts()[name](run)
            except Exception as e:  # the other parts are worth having
                run.note(name, error=f"{type(e).__name__}: {e}"[:1500])
            for d in run.decks:
                d.end()
            run.note(name, part_seconds=round(time.monotonic() - begin, 1))
    finally:
        run.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
