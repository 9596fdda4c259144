/* An empty library, loaded only for its name. */
typedef int nothing;
