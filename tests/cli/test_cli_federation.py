"""`fedbo federation`: the file that sites pass on, made and explained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import optuna
import pytest
from cli.terminal import run, said
from optuna.trial import create_trial

from fedbo import Categorical, Federation, Float, Int, Space
from fedbo.message import Kind

EXAMPLE = """
direction = "minimize"
C = { type = "float", low = 1e-4, high = 10.0, log = true }
depth = { type = "int", low = 1, high = 8 }
kernel = { type = "categorical", choices = ["rbf", "linear"] }
"""
SPACE = Space(
    {
        "C": Float(1e-4, 10, log=True),
        "depth": Int(1, 8),
        "kernel": Categorical(["rbf", "linear"]),
    },
    direction="minimize",
)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def new(*args: object) -> Federation:
    run("federation", "new", *args)
    return Federation.load("federation.toml")


def write(text: str = EXAMPLE) -> None:
    Path("space.toml").write_text(text)


# From a space


def test_the_example_in_the_help_is_one() -> None:
    text = run("federation", "new", "--help")
    assert all(line.strip() in text for line in EXAMPLE.strip().splitlines())
    write()
    assert new("--from-space", "space.toml") == Federation(SPACE)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_new_federation_has_what_was_asked_for(kind: Kind) -> None:
    write()
    made = new("--from-space", "space.toml", "--features", 40, "--seed", 3, "--kind", kind)
    assert made == Federation(SPACE, features=40, seed=3, kind=kind)


def test_new_says_what_show_says_and_what_to_do_next() -> None:
    write('depth = { type = "categorical", choices = ["None", { none = true }, 3] }')
    text = run("federation", "new", "--from-space", "space.toml")
    assert text.startswith(shown := run("federation", "show"))
    assert "depth Categorical(choices=(None, 3, 'None')) 3" in " ".join(shown.split())
    assert "Give every site this very file" in text
    assert Federation.load("federation.toml").space.parameters == {
        "depth": Categorical([None, 3, "None"])
    }


def test_a_file_that_exists_stays_unless_forced() -> None:
    write()
    Path("federation.toml").write_text("precious")
    text = said("federation", "new", "--from-space", "space.toml", code=2)
    assert "federation.toml exists" in text
    assert Path("federation.toml").read_text() == "precious"
    assert new("--from-space", "space.toml", "--force") == Federation(SPACE)


@pytest.mark.parametrize(
    ("text", "args", "complaint"),
    [
        ("C = 1", [], "space.toml: parameter 'C': Expected"),
        ("", [], "space.toml: parameters is {}"),
        ("C = ", [], "space.toml: Invalid value"),
        ('C = { type = "int", low = 3, high = 1 }', [], "low is 3, high is 1"),
        (EXAMPLE, ["--features", "5001"], "features is 5001, expected an int from 1 to 5000"),
    ],
)
def test_what_is_wrong_with_a_space_is_said(text: str, args: list[str], complaint: str) -> None:
    write(text)
    assert complaint in said("federation", "new", "--from-space", "space.toml", *args, code=1)
    assert not Path("federation.toml").exists()


def test_one_of_two_sources_is_needed() -> None:
    for both in (), ("--from-space", "space.toml", "--from-study", "sqlite:///a.db", "s"):
        assert "give exactly one of the two" in said("federation", "new", *both, code=2)
    text = said("federation", "new", "--from-space", "nowhere.toml", code=1)
    assert "nowhere.toml cannot be used: No such file" in text


# From a study


FLOATS = optuna.distributions.FloatDistribution
CHOICES = optuna.distributions.CategoricalDistribution


def study(
    name: str, *trials: dict[str, tuple[object, optuna.distributions.BaseDistribution]]
) -> str:
    """Store a study with these finished trials; return what a federation of it says."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    made = optuna.create_study(storage="sqlite:///a.db", study_name=name)
    optuna.logging.set_verbosity(verbosity)
    for trial in trials:
        params = {key: value for key, (value, _) in trial.items()}
        ranges = {key: distribution for key, (_, distribution) in trial.items()}
        made.add_trial(create_trial(value=1.0, params=params, distributions=ranges))
    code = 0 if trials else 1
    return said("federation", "new", "--from-study", "sqlite:///a.db", name, code=code)


def test_a_federation_of_a_study_has_its_space_and_direction() -> None:
    depth = optuna.distributions.IntDistribution(1, 8)
    C, kernel = FLOATS(1e-4, 10, log=True), CHOICES(["rbf", "linear"])
    text = study("mine", {"depth": (3, depth), "C": (0.1, C), "kernel": ("rbf", kernel)})
    assert Federation.load("federation.toml") == Federation(SPACE)
    assert "Left out" not in text


def test_parameters_that_sites_cannot_share_are_named() -> None:
    always = {
        "x": (0.5, FLOATS(0, 1)),
        "depth": (None, CHOICES([None, 3])),
        "flag": (1, CHOICES([True, 1])),
        "only": (1.0, FLOATS(1, 1)),
    }
    trials = [always | {"moving": (0.5, FLOATS(0, 1 + i))} for i in range(3)]
    text = study("mine", *trials[:2], trials[2] | {"some": (0.5, FLOATS(0, 1))})
    assert Federation.load("federation.toml").space.parameters == {
        "depth": Categorical([None, 3]),
        "x": Float(0, 1),
    }
    for remark in (
        "'moving' has no fixed range: float 0.0 to 1.0 in one trial and float 0.0 to",
        "'some' is in 1 of 3 finished trials only",
        "choices is (True, 1), expected two or more, no two of them equal",
        "'only' has one value only",
        "To share one of them, suggest it in every trial",
    ):
        assert remark in text


def test_a_study_without_a_space_is_refused() -> None:
    assert "study 'empty' has no finished trial" in study("empty")
    assert not Path("federation.toml").exists()


def test_without_optuna_a_study_is_out_of_reach_and_a_file_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr("fedbo.cli.checks.find_spec", lambda name: None)
    for name in [name for name in sys.modules if name.startswith("fedbo.optuna")]:
        monkeypatch.delitem(sys.modules, name)
    text = said("federation", "new", "--from-study", "sqlite:///a.db", "mine", code=1)
    assert "pip install 'fedbo[optuna]'" in text
    write()
    assert new("--from-space", "space.toml") == Federation(SPACE)


# What a file says


GOLDEN = """\
Federation federation.toml
Scores are minimised over 3 parameters, which span 3 dimensions of the unit cube of the
models.
  parameter   values                                   dimensions
  ─────────────────────────────────────────────────────────────────
  C           Float(low=0.0001, high=10.0, log=True)            1
  depth       Int(low=1, high=8)                                1
  kernel      Categorical(choices=('linear', 'rbf'))            1

  features       100, kernel se, seed 7
  length scale   0.2 on the unit cube
  noise          0.1, as a variance of standardised scores
  message        compact with a tip, about 197 bytes each with a signature
  fingerprint    4dc70011-b2fbdb1a-9bf9ba94-64368866, the same at all sites that agree on this

No members are listed, so anyone who can write to the exchange can take part under any
name that is not known yet. To admit members only, list their keys in a section
[members]; fedbo identity show prints a site's key.

A site sends roughly what its model knows and does not know, and in which of some public
cells of the space it made none, one, two or more trials. It also sends a tip, which its
peers try first: the parameters of the trial that its model likes best, with each
continuous one rounded to one of 16 places; tips=False, or --no-tips, leaves it out. The
message also has the name of the site, how many trials it has, a counter, the
fingerprint and a signature. It has no score, no data, no code, and no other trial.
Peers learn roughly where its scores are good, because that is what helps them.
"""


def test_show_explains_a_federation() -> None:
    ours = Federation(SPACE, features=100, seed=7, length_scale=0.2)
    ours.save("federation.toml")
    text = run("federation", "show", "federation.toml", columns=100)
    assert "".join(f"{line.rstrip()}\n" for line in text.splitlines()) == GOLDEN


def test_a_federation_without_tips_says_so() -> None:
    write('x = { type = "float", low = 0.0, high = 1.0 }')
    text = said("federation", "new", "f.toml", "--from-space", "space.toml", "--no-tips")
    assert not Federation.load("f.toml").tips
    assert "tip" not in text and "no code, and no trial" in text


def test_show_names_the_members() -> None:
    members = {f"site-{i:02}": bytes([i + 1] * 32) for i in range(22)}
    Federation(SPACE, members=members).save("f.toml")
    text = said("federation", "show", "f.toml")
    assert "Only messages signed by its 22 members are accepted: site-00, site-01, " in text
