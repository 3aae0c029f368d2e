"""Random programs: of the IR, for passes (`in_ir`), and as a user writes them, for everything (the rest).

description   what a program is, and its text
writing       a random program, statement by statement; `statements` has one file for each family
building      a graph from the text; `written_out` has every loop as its steps
oracles       what a program computes, by three ways that do not share anything
answers       the values that these accept
judging       how far from each other two values may be
routes        the ways through loopax, and what each must agree with; `verdicts` what came of one
shares        how often each route runs
shrinking     the fewest statements that show a fault
running       many programs, in a process that may hang; `__main__` is the command
"""
