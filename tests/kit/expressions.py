"""Expressions of the rule language at random, for property tests: well typed, over the metrics a, b and c."""

from __future__ import annotations

from hypothesis import strategies as st

from rules.syntax import Binary, Call, Compare, Duration, Logic, Metric, Negate, Node, Not, Number, Window

METRICS = ("a", "b", "c")
_WINDOW_NAMES = (
    "mean median min max sum std mad delta first last count changes trend drop zscore rzscore nonfinite slope quantile ewma"
)


def _metric() -> st.SearchStrategy[Metric]:
    return st.sampled_from([Metric(name) for name in METRICS])


def _number() -> st.SearchStrategy[Number]:
    return st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, 10.0, 1e-3, -2.5, 1e6]).map(Number)


@st.composite
def windows(draw: st.DrawFn, smallest: int = 1) -> Window:
    """A window of any unit."""
    metric = draw(_metric())
    match draw(st.sampled_from(["records", "atleast", "steps", "time"])):
        case "records":
            return Window(metric, "records", draw(st.integers(smallest, 6)), draw(st.integers(0, 2)))
        case "atleast":
            least = draw(st.integers(smallest, 4))
            return Window(metric, "records", least + draw(st.integers(1, 4)), draw(st.integers(0, 2)), least)
        case "steps":
            return Window(metric, "steps", draw(st.integers(1, 8)), draw(st.integers(0, 2)))
        case _:
            return Window(metric, "time", draw(st.sampled_from([60.0, 90.0, 600.0])), draw(st.sampled_from([0.0, 60.0])))


@st.composite
def _window_calls(draw: st.DrawFn) -> Call:
    name = draw(st.sampled_from(_WINDOW_NAMES.split()))
    if name == "quantile":
        return Call(name, (Number(draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))), draw(windows())))
    if name == "ewma":
        return Call(name, (draw(windows()), Number(draw(st.sampled_from([0.5, 1.0, 5.0])))))
    return Call(name, (draw(windows(smallest=3)),))


def _leaves() -> st.SearchStrategy[Node]:
    return st.one_of(
        _number(),
        _metric(),
        _window_calls(),
        st.sampled_from([Call("recorded", (Metric("a"),)), Call("baseline", (Metric("b"),)), Call("age", (Metric("c"),))]),
        st.sampled_from([Duration(90.0), Metric("since_start")]),
    )


def _grow(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/"]), inner, inner),
        inner.filter(lambda node: not isinstance(node, Number)).map(Negate),
        st.builds(lambda name, arg: Call(name, (arg,)), st.sampled_from(["abs", "log", "exp", "sqrt"]), inner),
        st.builds(lambda name, a, b: Call(name, (a, b)), st.sampled_from(["min", "max"]), inner, inner),
        st.builds(lambda a, b, c: Call("clamp", (a, b, c)), inner, inner, inner),
    )


def expressions() -> st.SearchStrategy[Node]:
    """Numbers."""
    return st.recursive(_leaves(), _grow, max_leaves=6)


def _comparisons() -> st.SearchStrategy[Node]:
    return st.one_of(
        st.builds(Compare, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), expressions(), expressions()),
        _metric().map(lambda metric: Call("is_nan", (metric,))),
        windows().filter(lambda window: not window.least).map(lambda window: Call("absent", (window,))),
    )


def conditions() -> st.SearchStrategy[Node]:
    """Conditions."""
    return st.recursive(
        _comparisons(),
        lambda inner: st.one_of(st.builds(Logic, st.sampled_from(["and", "or"]), inner, inner), inner.map(Not)),
        max_leaves=5,
    )
