"""A small folder of results in the format that the commands write, for tests of the report."""

from adahb.experiments.store import to_json

SIX = ("AdaHB", "Adam", "SGD", "SGD-momentum", "AdaGrad", "RMSprop")
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='hacked=1'>&<b>%{x}"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><path d='M0 0h9'/></svg>\n"
ENVIRONMENT = {"adahb": "0", "python": "3"}


def estimate(value, half=0.0):
    return {"value": value, "low": value - half, "high": value + half}


def claim(name, verdict, remark=""):
    finding = {
        "what": f"what {name} rests on",
        "estimate": estimate(0.5, 0.1),
        "at_least": None,
        "at_most": 1.0,
        "range": "at most 1",
        "verdict": verdict,
    }
    beside = {**finding, "range": "", "verdict": None, "estimate": {**estimate(1.0), "high": None}}
    return {
        "id": name,
        "statement": f"statement of {name} & <more>",
        "findings": [finding, beside],
        "remark": remark,
        "verdict": verdict,
    }


def claims():
    verdicts = {"C1": "supported", "C2 HB": "supported", "C2 printed": "not supported"}
    judged = [claim(name, verdict) for name, verdict in verdicts.items()]
    return {"claims": [*judged, claim("C8 Lemma 2", "undecided")], "environment": ENVIRONMENT}


def figure5():
    curves = [
        {"label": label, "published": published, "value": [0.0, 0.1 * k, 0.2 * k]}
        for k, (label, published) in enumerate([("PSG, last", True), (HOSTILE, False)], 1)
    ]
    panels = [{"T": T, "lower_bound": 0.1, "step": [1, 2, T], "curves": curves} for T in (10, 20)]
    return {"panels": panels, "environment": ENVIRONMENT}


def convex():
    curves = [
        {"label": label, "published": True, "value": [0.2, 0.1], "low": low, "high": [0.3, 0.2]}
        for label, low in (("PSG, average", [0.1, 0.05]), ("HB, last", [0.1, -0.05]))
    ]
    panel = {"dataset": "a9a", "radius": 20.0, "epoch": [0.125, 1.0], "curves": curves}
    return {"panels": [panel], "environment": ENVIRONMENT}


def deep(dataset="cifar10", networks=("cnn", "resnet18"), judged=("C5", "C6", "C7"), remark=""):
    def row(k, label):
        found = {"label": label, "alpha": 0.01, "final_loss": estimate(0.05 * (k + 1), 0.01)}
        for quantity in ("train_loss", "test_accuracy"):
            found[quantity] = estimate(0.1 * (k + 1), 0.01)
            found[f"{quantity} curve"] = {
                "value": [1.0, 0.5, 0.1 * (k + 1)],
                "low": [0.9, 0.4, None if k == 5 else -0.1],
                "high": [1.1, 0.6, None if k == 5 else 0.3],
            }
            if k:
                found[f"AdaHB minus this, {quantity}"] = estimate(-0.1 * k, 0.01)
        return found

    rows = [row(k, label) for k, label in enumerate(SIX)]
    cells = [
        {
            "dataset": dataset,
            "network": network,
            "epochs": 3,
            "batch": 512,
            "precision": "float32",
            "protocols": {"published": rows, "fair": rows[:]},
        }
        for network in networks
    ]
    return {
        "seeds": [0, 1],
        "cells": cells,
        "environment": [ENVIRONMENT, {"gpu": HOSTILE}],
        "claims": [claim(name, "supported", remark) for name in judged],
    }


def filled(folder):
    """Write claims and figures 1 to 6 with a picture of one of them, and return the folder."""
    contents = {"claims": claims(), "figure5": figure5(), "convex": convex(), "deep-paper": deep()}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(to_json(content))
    (folder / "figure5.svg").write_bytes(SVG)
    return folder
