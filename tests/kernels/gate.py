#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gate.py [--archs 80,90,100] [--work DIR] [--jobs N] [--source NAME]: the kernels, compiled and judged.

What a GPU would show only as lost time, the compiler's own report shows without one. Every device
source is compiled for every architecture that this nvcc knows, and each kernel is held to
limits.txt:

  - no spills, no local memory: a stack frame means an array that left the registers;
  - registers under the cap of its launch bounds;
  - accesses of 16 bytes where the kernel's form promises them, and none narrower;
  - no multimem instruction outside the kernels that only the multicast switch reaches;
  - the machine code for one architecture under 40 MiB.

The PTX tells of the accesses. Where cuobjdump and nvdisasm are found the machine code is looked at
too (LDG/STG.E.128, and no LDL or STL). What could not be compiled here is counted as skipped and
named, never as passed; without any nvcc the exit status is 77. Last, planted faults (planted/*.cu,
each with a line "// expect: ...") must be seen, or the gate itself has failed.

A source whose inputs have not changed since the last run is not compiled again (--work).
"""
import argparse
import concurrent.futures
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIBRARY_LIMIT = 40 << 20  # bytes of machine code for one architecture
LONGEST = ("lane_reduce", "norm", "moe", "quantized", "two_shot", "one_shot_general", "linear")  # to compile: go first


def find_tool(name):
    """A program of the CUDA toolkit, or None."""
    places = [os.environ.get(name.upper()), shutil.which(name)]
    places += sorted(glob.glob("/usr/local/cuda*/bin/" + name), reverse=True)
    places += glob.glob(os.path.join(ROOT, "build/cuda-tools/lib/python3*/site-packages/nvidia/*/bin/" + name))
    return next((p for p in places if p and os.access(p, os.X_OK)), None)


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **options)


class Limits:
    """limits.txt: which rule holds for which kernel; the first line that fits counts."""

    def __init__(self, path):
        self.rules = []
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                words = line.split("#")[0].split()
                if not words:
                    continue
                if len(words) < 2 or not words[1].isdigit():
                    sys.exit(f"{path}:{number}: expected: PATTERN REGISTERS [wide] [multimem]")
                self.rules.append((re.compile(words[0]), int(words[1]), set(words[2:])))

    def of(self, kernel):
        name = re.sub(r"^_Z\d+", "", kernel) # and not the types of its arguments
        for pattern, registers, flags in self.rules:
            if pattern.match(name):
                return registers, flags
        return None


class Kernel:
    """One kernel in one object: the compiler's figures and its PTX."""

    def __init__(self, name, arch):
        self.name = name
        self.arch = arch
        self.stack = self.stores = self.loads = self.registers = 0
        self.ptx = ""
        self.sass = ""

    def faults(self, limits):
        found = []
        rule = limits.of(self.name)
        if rule is None:
            return ["is not in limits.txt"]
        cap, flags = rule
        if self.stores or self.loads:
            found.append(f"spills {self.stores} bytes, reloads {self.loads}")
        if self.stack:
            found.append(f"has {self.stack} bytes of local memory")
        if self.registers > cap:
            found.append(f"takes {self.registers} registers, more than {cap}")
        if "multimem" in self.ptx and "multimem" not in flags:
            found.append("has a multimem instruction")
        if "multimem" in flags and "multimem" not in self.ptx and self.arch >= 90:
            found.append("has no multimem instruction")
        if "wide" in flags:
            found += self.narrow()
        if not self.stack and re.search(r"\b(LDL|STL)\b", self.sass):
            found.append("touches local memory, which the report does not show")
        return found

    def narrow(self):
        """What an aligned kernel must have: data in 16 bytes only. (Words of 8 bytes with a scope
        are the protocol's own: epochs, tokens, credits; weak ones are the user's data.)"""
        found = []
        if not re.search(r"\bld\.global(\.\w+)*\.v2\.(u|b)64", self.ptx):
            found.append("does not load 16 bytes at once")
        if not re.search(r"\bst\.global(\.\w+)*\.v2\.(u|b)64", self.ptx):
            found.append("does not store 16 bytes at once")
        slim = re.search(r"\b(ld|st)\.global\.(u|b|s|f)(8|16|32|64)\b", self.ptx)
        if slim:
            found.append(f"has a narrow access ({slim.group(0)})")
        for access in ("LDG", "STG") if self.sass and not found else ():
            if not re.search(rf"\b{access}\.E[\w.]*\.128", self.sass):
                found.append(f"has no {access}.E.128")
        return found


def read_report(text, kernels, arch):
    """ptxas -v. What a function that is called takes counts for the kernel before it."""
    name = None
    for line in text.splitlines():
        entry = re.search(r"Compiling entry function '(\w+)'", line)
        if entry:
            name = entry.group(1)
            kernels.setdefault(name, Kernel(name, arch))
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
                          line)
        if stack and name:
            k = kernels[name]
            figures = (int(x) for x in stack.groups())
            k.stack, k.stores, k.loads = map(max, (k.stack, k.stores, k.loads), figures)
        used = re.search(r"Used (\d+) registers", line)
        if used and name:
            kernels[name].registers = int(used.group(1))


def read_ptx(path, kernels):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    # device functions that were not inlined count for every kernel of the file
    shared = "\n".join(re.findall(r"^\.func .*?^}", text, re.S | re.M))
    for part in re.split(r"^(?=(?:\.visible |\.weak )?\.entry )", text, flags=re.M)[1:]:
        name = re.search(r"\.entry\s+(\w+)", part).group(1)
        if name in kernels:
            body = part[: part.find("\n}") + 2] if "\n}" in part else part
            kernels[name].ptx = body + shared


def read_sass(cubin, kernels, tools):
    if not tools["cuobjdump"]:
        return
    path = os.pathsep.join([os.path.dirname(t) for t in tools.values() if t] +
                           [os.environ.get("PATH", "")])
    text = run([tools["cuobjdump"], "--dump-sass", cubin], env={**os.environ, "PATH": path}).stdout
    for part in text.split("Function : ")[1:]:
        name = part.split(None, 1)[0]
        if name in kernels:
            kernels[name].sass = part


class Job:
    """One source for one architecture."""

    def __init__(self, source, arch, args, inputs):
        self.source, self.arch, self.args = source, arch, args
        stem = os.path.splitext(os.path.basename(source))[0]
        self.label = f"{stem}.sm_{arch}"
        self.place = os.path.join(args.work, self.label)
        self.cubin = os.path.join(self.place, "kernel.cubin")
        self.ptx = os.path.join(self.place, "kernel.ptx")
        self.log = os.path.join(self.place, "log")
        self.command = [args.tools["nvcc"], "-std=c++17", "-O3", "-I" + os.path.join(ROOT, "src"),
                        "-I" + os.path.join(ROOT, "include"), "-DSOL_WITH_CUDA=1"]
        self.key = hashlib.sha256((inputs + source + " ".join(self.command[1:]) + arch).encode())
        with open(source, "rb") as file:
            self.key.update(file.read())
        self.seconds = 0.0
        self.error = None

    def fresh(self):
        try:
            with open(os.path.join(self.place, "key"), encoding="ascii") as file:
                return file.read() == self.key.hexdigest()
        except OSError:
            return False

    def compile(self):
        """The PTX first, then its machine code: the front end runs once, and no host code is made."""
        if self.fresh():
            return
        shutil.rmtree(self.place, ignore_errors=True)
        os.makedirs(self.place)
        begin = time.monotonic()
        ptx = run(self.command + ["-ptx", f"-arch=compute_{self.arch}", self.source, "-o", self.ptx])
        sass = ptx
        if ptx.returncode == 0:
            sass = run([self.args.tools["nvcc"], "-cubin", f"-arch=sm_{self.arch}", "-Xptxas", "-v",
                        self.ptx, "-o", self.cubin])
        self.seconds = time.monotonic() - begin
        with open(self.log, "w", encoding="utf-8") as file:
            file.write(ptx.stdout + (sass.stdout if sass is not ptx else ""))
        if sass.returncode != 0:
            self.error = (ptx.stdout + sass.stdout).strip().splitlines()[-3:]
            return
        with open(os.path.join(self.place, "key"), "w", encoding="ascii") as file:
            file.write(self.key.hexdigest())

    def kernels(self):
        found = {}
        with open(self.log, encoding="utf-8") as file:
            read_report(file.read(), found, int(self.arch))
        read_ptx(self.ptx, found)
        read_sass(self.cubin, found, self.args.tools)
        return list(found.values())


def demangled(name):
    if not shutil.which("c++filt"):
        return name
    text = run(["c++filt", name]).stdout.strip()
    return re.sub(r"^void |\(.*$", "", text)


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def fail(self, text):
        self.failed += 1
        print("FAILED  " + text)


def judge(job, limits, tally):
    """Bytes of machine code."""
    if job.error:
        tally.fail(f"{job.label} does not compile: " + " | ".join(job.error))
        return 0
    most, kernels = 0, job.kernels()
    for kernel in kernels:
        faults = kernel.faults(limits)
        most = max(most, kernel.registers)
        for fault in faults:
            tally.fail(f"{job.label}: {demangled(kernel.name)} {fault}")
        tally.passed += not faults
    size = os.path.getsize(job.cubin)
    print(f"ok      {job.label:32s} {len(kernels):4d} kernels, most registers {most:3d}, "
          f"{size / 1024:8.0f} KiB, {job.seconds:6.1f} s")
    return size


def expected_faults(source):
    with open(source, encoding="utf-8") as file:
        return re.findall(r"^// expect: (.*)$", file.read(), re.M)


def try_planted(args, limits, arch, tally):
    """Faults that the gate must see, one file each."""
    for source in sorted(glob.glob(os.path.join(HERE, "planted", "*.cu"))):
        job = Job(source, arch, args, "planted")
        job.compile()
        name = "planted " + os.path.basename(source)
        if job.error:
            tally.fail(f"{name} does not compile: " + " | ".join(job.error))
            continue
        seen = [f for kernel in job.kernels() for f in kernel.faults(limits)]
        wanted = expected_faults(source)
        missing = [w for w in wanted if not any(re.search(w, s) for s in seen)]
        if missing or not wanted or len(seen) != len(wanted):
            tally.fail(f"{name}: expected {wanted}, the gate saw {seen}")
        else:
            tally.passed += 1
            print(f"ok      {name}: seen ({'; '.join(seen)})")


def inputs_digest():
    """Everything that a device source can include."""
    digest = hashlib.sha256()
    for pattern in ("include/**/*.h", "src/device/**/*.*", "src/proto/*.h", "src/base/*.h"):
        for path in sorted(glob.glob(os.path.join(ROOT, pattern), recursive=True)):
            if not path.endswith(".cu"):
                with open(path, "rb") as file:
                    digest.update(path.encode() + file.read())
    return digest.hexdigest()


def options():
    parser = argparse.ArgumentParser(description="compile all kernels and judge what came out")
    parser.add_argument("--archs", default="90,80,100")
    parser.add_argument("--work", default=os.path.join(ROOT, "build", "kernels"))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--source", default="", help="only sources whose name contains this")
    parser.add_argument("--plant-only", action="store_true", help="only the test of the gate itself")
    args = parser.parse_args()
    args.tools = {name: find_tool(name) for name in ("nvcc", "cuobjdump", "nvdisasm")}
    return args


def main():
    args = options()
    if not args.tools["nvcc"]:
        print("no nvcc was found: the kernels were not compiled")
        return 77
    version = run([args.tools["nvcc"], "--version"]).stdout.strip().splitlines()[-1]
    known = set(re.findall(r"sm_(\d+)\b", run([args.tools["nvcc"], "--list-gpu-code"]).stdout))
    print(f"{args.tools['nvcc']}: {version}; machine code is "
          f"{'looked at' if args.tools['cuobjdump'] else 'not looked at (no cuobjdump)'}")
    limits, tally = Limits(os.path.join(HERE, "limits.txt")), Tally()
    wanted = args.archs.split(",")
    archs = [a for a in wanted if a in known]
    for arch in wanted:
        if arch not in known:
            tally.skipped += 1
            print(f"skipped sm_{arch}: this nvcc does not know it")
    sources = sorted(glob.glob(os.path.join(ROOT, "src/device/**/*.cu"), recursive=True) +
                     glob.glob(os.path.join(ROOT, "src/backend/cuda/*.cu")))
    sources = [s for s in sources if args.source in s]
    if archs:
        try_planted(args, limits, archs[0], tally)
    digest = inputs_digest() + version
    jobs = [] if args.plant_only else [Job(s, a, args, digest) for a in archs for s in sources]
    order = {name: place for place, name in enumerate(LONGEST)}
    jobs.sort(key=lambda job: order.get(job.label.split(".")[0], len(order)))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(Job.compile, jobs))
    for arch in archs:
        size = sum(judge(job, limits, tally) for job in jobs if job.arch == arch)
        if size > LIBRARY_LIMIT:
            tally.fail(f"sm_{arch}: {size} bytes of machine code, more than {LIBRARY_LIMIT}")
        elif jobs:
            print(f"ok      sm_{arch}: {size / 1048576:.1f} MiB of machine code "
                  f"(at most {LIBRARY_LIMIT >> 20})")
    cpu = os.times()
    print(f"{cpu.children_user + cpu.children_system:.0f} s of processor time")
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
