// Rules broken on purpose, one in each mutant. The differential test must catch them all.
#pragma once

#define MUTANT_quorum_of_one 1
#define MUTANT_drain_forgotten 2
#define MUTANT_drain_uses_data 3
#define MUTANT_owed_dropped 4
#define MUTANT_one_witness_is_enough 5
#define MUTANT_any_index 6
#define MUTANT_proof_counts_twice 7
#define MUTANT_accusations_believed 8
#define MUTANT_one_calls_gone 9
#define MUTANT_first_reporter_is_right 10
#define MUTANT_any_checkpoint 11
#define MUTANT_rewind_keeps_progress 12
#define MUTANT_handed_on_undrained 13
#define MUTANT_removal_moves_up 14
#define MUTANT_silent_stay 15
#define MUTANT_reveal_unchecked 16
#define MUTANT_speed_ignored 17
#define MUTANT_expelled_come_back 18
#define MUTANT_newcomers_crowd 19
#define MUTANT_unready_stay 20

#define BROKEN(rule) (MUTANT == MUTANT_##rule)
