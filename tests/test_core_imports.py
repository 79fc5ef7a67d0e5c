"""The core needs torch, numpy and safetensors, and nothing else that must be installed."""

import ast
import subprocess
import sys
from pathlib import Path

import gausslens

PACKAGE = Path(gausslens.__file__).parent
CORE = {"torch", "numpy", "safetensors"}

# Elsewhere than in the core files, or only when asked for.
EXCUSED = {
    "_typing.py": {"jaxtyping"},
    "_kernels/triton_programs.py": {"triton"},
    "progress.py": {"tqdm"},
    "auditing/controls.py": {"scipy"},
    "auditing/exchangeability.py": {"scipy"},
    "auditing/membership.py": {"scipy"},
    "auditing/power.py": {"scipy"},
    "paper/claims/inference.py": {"scipy"},
    "training/train.py": {"accelerate"},
    "store/artifact.py": {"filelock"},
    "evaluation/context.py": {"filelock"},
    "store/image_io.py": {"PIL"},
    "data/decoding.py": {"PIL"},
    "data/image_files.py": {"PIL"},
    "report/pictures.py": {"PIL"},
    "report/rendering.py": {"jinja2", "markupsafe"},
    "experiments/executors.py": {"ray"},
}

# Importing is allowed from the standard library, the core and what torch itself requires; all else is not installed.
BLOCKER = '''
import re
import sys
from importlib import metadata
from importlib.machinery import PathFinder

def required(name):
    try:
        texts = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # for another platform
        return set()
    names = {re.match(r"[\\w-]+", text)[0].lower().replace("-", "_") for text in texts if "extra ==" not in text}
    return names.union(*map(required, names))

ALLOWED = {"torch", "torchgen", "functorch", "numpy", "safetensors", "gausslens", "pkg_resources", "_distutils_hack"}
ALLOWED |= required("torch") | set(sys.stdlib_module_names)

class OnlyAllowed:
    """Finds what is installed, as if nothing were but what is allowed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        # The standard library's platform data has a name of its own on every platform.
        if name.partition(".")[0] in ALLOWED or name.startswith("_sysconfigdata"):
            return PathFinder.find_spec(name, path, target)
        return None

sys.meta_path[sys.meta_path.index(PathFinder)] = OnlyAllowed
for name in ("tqdm", "PIL", "scipy", "jaxtyping", "beartype", "accelerate", "matplotlib", "datasets",
             "diffusers", "torchvision", "hypothesis"):
    assert name not in ALLOWED and name not in sys.modules, name
'''

END_TO_END = """
import importlib
import pkgutil

import torch

import gausslens as gl

# Audits, the paper's claims and sample sizes need scipy.
applications = ("gausslens.auditing.", "gausslens.paper.", "gausslens.sample_size.")
for info in pkgutil.walk_packages(gl.__path__, "gausslens."):
    if info.name != "gausslens.__main__" and not info.name.startswith(applications):
        importlib.import_module(info.name)
for name in gl.__all__:
    if name != "audit":
        getattr(gl, name)

images = torch.randint(0, 256, (40, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
train, held_out, sigmas = images[:20], images[20:], gl.karras_sigmas(3, 0.1, 10.0)
moments = gl.Moments.fit(train)
gaussian, memory = gl.GaussianDenoiser(moments), gl.MultiDeltaDenoiser(train)
fit = gl.distill(memory, train, sigmas, held_out=held_out)
curves = [
    gl.linearity(memory, held_out, sigmas),
    gl.gap(gaussian, memory, held_out, sigmas),
    gl.identity_gap(memory, held_out, sigmas),
]
assert all(curve.values.isfinite().all() for curve in curves)
gl.alignment(fit, moments, float(sigmas[1]), k=4)
gl.jacobian_spectrum(memory, torch.randn(2, 1, 4, 4), 1.0, k=3)
latents = torch.randn(30, 1, 4, 4, generator=torch.Generator().manual_seed(1))
samples = gl.sample(memory, latents, steps=5)
gl.memorization(samples, train, held_out)
gl.agreement(samples, gl.sample(gaussian, latents, steps=5))
try:
    gl.sample(memory, latents, steps=2, progress=True)
except gl.MissingExtraError as error:
    assert "pip install tqdm" in str(error)
else:
    raise AssertionError("the blocker let tqdm through")
print("done")
"""


def test_everything_works_with_the_core_packages_alone():
    answer = subprocess.run(
        [sys.executable, "-c", BLOCKER + END_TO_END], capture_output=True, text=True, timeout=170, check=False
    )
    assert answer.stdout == "done\n", answer.stderr


def imported(path):
    """Top-level names that a file imports, relative imports left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]


def test_files_import_the_core_packages_alone():
    allowed = CORE | {"gausslens"} | set(sys.stdlib_module_names)
    strangers = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in imported(path)
        if name not in allowed | EXCUSED.get(path.relative_to(PACKAGE).as_posix(), set())
    }
    assert strangers == set()


def test_the_progress_bar_is_imported_only_when_shown():
    tree = ast.parse((PACKAGE / "progress.py").read_text(encoding="utf-8"))
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert all(node.level > 0 or node.module.partition(".")[0] in sys.stdlib_module_names for node in at_once)


def test_importing_the_package_imports_nothing_heavy():
    program = "import sys, gausslens; print(sorted({'torch', 'numpy', 'safetensors'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout == "[]\n"
