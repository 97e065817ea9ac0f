import numpy as np

from sparc_dist.prompts import PromptBank, all_pairs, descriptive_prompts

CLASSES = ("cat", "dog", "sofa")


def test_a_bank_can_be_stored_as_a_table() -> None:
    prompts = [*all_pairs(CLASSES), *descriptive_prompts(CLASSES, ["Cats on a sofa."])]
    bank = PromptBank(CLASSES, tuple(prompts))
    table = bank.to_table()
    assert table["prompt_id"].to_pylist() == list(range(10))
    assert table["kind"].to_pylist() == ["singleton"] * 3 + ["auxiliary"] * 3 + ["compound"] * 4
    assert table["origin"].to_pylist()[-2:] == ["pair", "descriptive"]
    assert PromptBank.from_table(table) == bank


def test_mentions_are_the_prompts_of_each_class() -> None:
    bank = PromptBank(CLASSES, tuple(all_pairs(CLASSES)))
    for found, expected in zip(bank.mentions, ([0, 1], [0, 2], [1, 2]), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_different_banks_have_different_hashes() -> None:
    bank = PromptBank(CLASSES, tuple(all_pairs(CLASSES)))
    assert bank.sha256 == PromptBank(CLASSES, tuple(all_pairs(CLASSES))).sha256
    assert bank.sha256 != PromptBank(CLASSES, tuple(all_pairs(CLASSES))[:-1]).sha256


def test_duplicate_sentences_and_those_without_a_class_are_left_out() -> None:
    prompts = descriptive_prompts(CLASSES, ["a cat", "a boat", "a cat", "dogs on a sofa"])
    assert [(p.text, p.class_ids) for p in prompts] == [("a cat", (0,)), ("dogs on a sofa", (1, 2))]
