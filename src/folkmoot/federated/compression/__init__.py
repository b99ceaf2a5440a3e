"""Updates in fewer bytes: a participant's step in bf16, in int8, or only its largest values.

What travels is a step from the round's global model, not a model. What a step loses on the way, its
sender adds to its next one (error feedback, Karimireddy et al. 2019), for as long as it lives.
Arrays of integers, and of half precision, travel as they are.
"""
