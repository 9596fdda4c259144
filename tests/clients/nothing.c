/* Nothing: what is loaded for its name only. */
typedef int nothing;
