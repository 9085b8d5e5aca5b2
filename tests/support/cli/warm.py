"""A process with everything loaded that the command line may need; a fork of it becomes `python -m coterie`.

Reads requests from standard input, a line of JSON each: arguments, folder, environment, and the files that the
command's output goes into. Answers with two lines for each: the child's number, then how it ended.
"""

import atexit
import gc
import json
import os
import runpy
import sys
import threading
from importlib import import_module

LOADED = (
    "coterie.cli.run_view", "coterie.cli.simulation_view", "coterie.cli.reproduction_view",
    "coterie.federation.audit", "coterie.federation.coordinator", "coterie.federation.device_file",
    "coterie.lab.attacks.demonstration", "coterie.lab.experiments.run", "coterie.lab.experiments.users",
    "coterie.lab.paper.runs", "coterie.leakage.readers", "coterie.pages.attack", "coterie.pages.audit",
    "coterie.pages.comparison", "coterie.pages.reproduction", "coterie.pages.run", "coterie.secagg",
    "coterie.selection.plan_file", "coterie.selection.trade_off",
    "flint", "jinja2", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.figure",
    "PIL.Image", "rich.live", "rich.progress", "scipy.optimize", "scipy.sparse", "scipy.special",
    "torch._inductor.config",
)  # fmt: skip


def serve():
    """Fork for every request; only a child comes back, with its request."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        os.write(1, b"%d\n" % child)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return None


def become(request):
    """Make this process what it would be if it had been started for the request."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for number, name in enumerate((os.devnull, *request["outputs"])):
        file = os.open(name, os.O_WRONLY if number else os.O_RDONLY)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - what was read ahead was not its own
    sys.path[0] = request["folder"]
    sys.argv = ["coterie", *request["arguments"]]


def run():
    """Run the command and end as the interpreter would, but for taking apart what this process did not load."""
    code = 0
    try:
        runpy.run_module("coterie", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - what the interpreter does with it
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # noqa: SLF001 - as the interpreter waits for threads
    atexit._run_exitfuncs()  # noqa: SLF001 - and lets modules end what they began
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    for module in LOADED:
        import_module(module)
    gc.collect()
    gc.freeze()  # a child's collector would touch, and so copy, all of it
    request = serve()
    if request is not None:
        become(request)
        run()
