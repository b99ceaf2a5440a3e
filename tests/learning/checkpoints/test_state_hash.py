import torch

from folkmoot.learning.checkpoints.leaf_hash import root_hash
from folkmoot.learning.checkpoints.state_hash import leaf_hash, state_hash
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
    assert {n for n in before.leaf_hashes if before.leaf_hashes[n] != after.leaf_hashes[n]} == {
        "2.bias"
    }


def test_name_dtype_and_shape_are_part_of_a_leaf():
    x = torch.zeros(4)
    others = [leaf_hash("y", x), leaf_hash("x", x.view(2, 2)), leaf_hash("x", x.view(torch.int32))]
    assert len({leaf_hash("x", x), *others}) == 4


def test_a_joiner_checks_each_parameter_alone():
    model = small_model()
    agreed = state_hash(model)
    assert root_hash(agreed.leaf_hashes) == agreed.root
    weight = model[0].weight.detach()
    assert leaf_hash("0.weight", weight) == agreed.leaf_hashes["0.weight"]
    assert leaf_hash("0.weight", weight + 1) != agreed.leaf_hashes["0.weight"]


def test_a_strided_tensor_and_bfloat16_hash_by_value():
    x = torch.randn(6, 4, dtype=torch.bfloat16)
    assert leaf_hash("x", x.T.contiguous()) == leaf_hash("x", x.T)
    assert leaf_hash("x", torch.tensor(1.0)) != leaf_hash("x", torch.tensor(2.0))
