/* A program that does nothing: what a hook costs that has nothing to do. */
int main(void)
{
    return 0;
}
