"""Option types that several commands share: one spelling and one help text each, a module a panel.

Ranges are checked by the library, whose messages say more than Typer's; here only the type is.
So is whether a file can be read (`readable=False`): a file that cannot is no wrong command line.
"""
