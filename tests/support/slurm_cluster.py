"""A real SLURM of two nodes on this machine, for the time of a `with` block.

Its daemons are processes of the test, in a folder of their own. They need root.
"""

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.app_server import free_port, wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
NODES = ("n1", "n2")
SBIN = "/usr/sbin"
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldTimeout=10
SlurmdTimeout=5
KillWait=10
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=cpu Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def why_unavailable() -> str:
    """Return why no cluster can start here; empty if it can."""
    path = f"{os.environ['PATH']}:{SBIN}"
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    if missing:
        return f"SLURM is not installed: {', '.join(missing)} missing"
    return "" if os.geteuid() == 0 else "the daemons of SLURM need root"


class SlurmCluster:
    """The daemons; `environment` is that of clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:{SBIN}",
        }
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "SlurmCluster":
        host = socket.gethostname().split(".")[0]
        text = CONFIGURATION.format(
            host=host, folder=self.folder, ports=[free_port() for _ in range(3)]
        )
        (self.folder / "slurm.conf").write_text(text)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{name}={self.folder}/munge.{end}" for name, end in files.items()]
        self._start("munged", "--foreground", "--force", f"--key-file={key}", *options)
        wait_for((self.folder / "munge.socket").exists, 10, "the socket of munged")
        self._start("slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        wait_for(lambda: self.run("sinfo", "-h", "-o", "%t %D").split() == ["idle", "2"], 30)
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(subprocess.CalledProcessError):
            self.run("scancel", "--user=root")
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def run(self, *words: str) -> str:
        """Return the output of a command of SLURM."""
        return subprocess.run(
            words, env=self.environment, check=True, capture_output=True, text=True, timeout=30
        ).stdout

    def start_node(self, node: str) -> None:
        self._start("slurmd", "-D", "-N", node, name=node)

    def tasks(self, state: str) -> list[str]:
        """Return the identifiers of the tasks in a state."""
        return self.run("squeue", "--array", "-h", "-t", state, "-o", "%i").split()

    def kill_node(self, node: str) -> None:
        """Kill the daemon of a node and its tasks, as if the machine lost its power."""
        daemon = self.daemons[node]
        jobs = self.run("squeue", "-h", "--nodelist", node, "-o", "%A").split()
        daemon.kill()
        daemon.wait()
        for job in jobs:
            marks = (f"slurmstepd: [{job}.".encode(), f"SLURM_JOB_ID={job}\0".encode())
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                    if any(mark in text for mark in marks):
                        os.kill(int(process.name), signal.SIGKILL)

    def _start(self, program: str, *options: str, name: str = "") -> None:
        with (self.folder / f"{name or program}.log").open("ab") as log:
            self.daemons[name or program] = subprocess.Popen(
                [f"{SBIN}/{program}", *options],
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
