"""Operations by oneDNN and by loops of C++, and the packing of weights for them."""
