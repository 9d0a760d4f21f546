"""What damages files: any bytes, or what knows how a format is built and keeps it so where it need not break."""
