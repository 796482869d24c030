"""The instructions, by family: each is its operands, its rules, what it computes, and what it costs."""
