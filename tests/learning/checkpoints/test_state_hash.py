import torch

from folkmoot.learning.checkpoints.state_hash import leaf, root, state_hash, wrong_parameter
from learning.method_run import small_model


def test_equal_models_have_equal_hashes_whatever_the_threads():
    a, b = small_model(), small_model()
    torch.set_num_threads(3)
    several = state_hash(a)
    torch.set_num_threads(1)
    assert several == state_hash(b)


def test_one_bit_in_one_parameter_changes_its_leaf_and_the_root_only():
    a, b = small_model(), small_model()
    bits = b[2].bias.data.view(torch.int32)
    bits[3] ^= 1
    before, after = state_hash(a), state_hash(b)
    assert before.root != after.root
    assert {n for n in before.leaves if before.leaves[n] != after.leaves[n]} == {"2.bias"}


def test_name_dtype_and_shape_are_part_of_a_leaf():
    x = torch.zeros(4)
    others = [leaf("y", x), leaf("x", x.view(2, 2)), leaf("x", x.view(torch.int32))]
    assert len({leaf("x", x), *others}) == 4


def test_a_joiner_checks_each_parameter_alone():
    model = small_model()
    agreed = state_hash(model)
    assert root(agreed.leaves) == agreed.root
    weight = model[0].weight.detach()
    assert wrong_parameter("0.weight", weight, agreed.leaves) is None
    assert "differs" in (wrong_parameter("0.weight", weight + 1, agreed.leaves) or "")
    assert "not part" in (wrong_parameter("9.weight", weight, agreed.leaves) or "")


def test_a_strided_tensor_and_bfloat16_hash_by_value():
    x = torch.randn(6, 4, dtype=torch.bfloat16)
    assert leaf("x", x.T.contiguous()) == leaf("x", x.T)
    assert leaf("x", torch.tensor(1.0)) != leaf("x", torch.tensor(2.0))
