"""Tools of other programs: the client side of the Model Context Protocol."""
