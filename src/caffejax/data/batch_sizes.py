def divided(m, by):
    return m
