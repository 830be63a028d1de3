"""The paper's rule for the choice of a setting, on validation rows, made definite.

Regression: "both a low validation loss and high CI-correct": of the settings whose loss is within
5 % of the lowest, the one with the highest coverage out of distribution. Classification: "both a
high validation accuracy and OOD prediction performance": of those within 0.8 percent of the best
accuracy, the one with the highest OOD AUC: 5,000 validation images tell two accuracies of 81 %
apart to 0.8 percent, one standard error.
"""

LOSS_SLACK = 1.05
ACCURACY_SLACK = 0.008


def chosen(valid: list[dict[str, float]]) -> int:
    """The number of the setting to use, given the validation metrics of all."""
    if "accuracy" in valid[0]:
        best = max(metrics["accuracy"] for metrics in valid)
        good = [i for i, m in enumerate(valid) if m["accuracy"] >= best - ACCURACY_SLACK]
        return max(good, key=lambda i: valid[i]["ood_auc"])
    best = min(metrics["id_loss"] for metrics in valid)
    good = [i for i, m in enumerate(valid) if m["id_loss"] <= LOSS_SLACK * best]
    return max(good, key=lambda i: valid[i]["ood_coverage"])
